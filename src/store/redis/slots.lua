-- SPDX-License-Identifier: Apache-2.0
-- The second part of the Redis store's program: strings of states with few holds, which holds.lua
-- describes.

local byte, char, find, sub = string.byte, string.char, string.find, string.sub

local function is_few(value) return byte(value) == 104 end  -- 'h'

local FEW_HOLDS_MAX = 32
local pack_few, unpack_few = struct.pack, struct.unpack
local FEW_HEAD, FEW_HEAD_SIZE = '<c1BI4I7I7I7I7I7I7', 48

local function few_data(expires, taken, units, flag)
  return format('%d %d %d %s', expires, taken, units, flag)
end

local function few_record(number, framed_id, data) return char(128 + number) .. framed_id .. data end

-- When the key may expire that is needed until then. Longer than that, so that not every hold has to
-- move it.
local function few_lives_until(needed, now)
  return needed > now and needed + floor((needed - now) / 4) or needed
end
