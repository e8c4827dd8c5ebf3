-- SPDX-License-Identifier: Apache-2.0
-- The second part of the Redis store's program: strings of concurrency limits with few holds, which
-- holds.lua describes, and the most common requests about holds: slots of one concurrency limit that are
-- taken and released, at the server's time. As in single.lua, whatever is not plain is left to the parts
-- that follow; nothing has been written to that key then.
--
-- ARGV   'slots'
--        operations   One byte and an id for each key: the number of the shape, counted from 128, or
--                     from 192 if the key has an operation before it in the call; and the id, which
--                     has a byte 2 before it and a byte 3 after it. The shape says how long that is.
--        shapes       'take signature units ttl length', or 'release signature units length'
-- Reply  As to checks: TIME's two numbers, and for each key a line. It has
--          held until   units on hold, and when the last of them expires, 0 if there are none: it was
--                       done. What was taken expires its ttl from now, and nothing was late.
--          h status;state, -1, or '!' and an error   as from holds.lua
--
-- To make a string takes Lua in Redis some 1.3 ns a byte, all of which it hashes. So only the head is
-- written anew, whatever follows it stays, and what many operations of a call have in common is made
-- once.

local byte, char, find, sub = string.byte, string.char, string.find, string.sub

local function is_few(value) return byte(value) == 104 end  -- 'h'

local FEW_HOLDS_MAX = 32
local HOLD_REMEMBERED, HOLD_TTL_MAX = 60000000, 86400000000  -- kHoldRemembered, kHoldTtlMax
local pack_few, unpack_few = struct.pack, struct.unpack
local FEW_HEAD, FEW_HEAD_SIZE = '<BBI4I7I7I7I7I7I7', 48

local function few_data(expires, taken, units, flag)
  return format('%d %d %d %s', expires, taken, units, flag)
end

-- When the key may expire that is needed until then. Longer than that, so that not every hold has to
-- move it.
local function few_lives_until(needed, now)
  return needed > now and needed + floor((needed - now) / 4) or needed
end

-- The head of a state under a concurrency limit, and the byte that ends the state in it.
local SLOTS_HEAD, SLOTS_END, SLOTS_SIZE = FEW_HEAD .. 'B', 3, FEW_HEAD_SIZE + 1

local BIT = {}
for i = 0, FEW_HOLDS_MAX - 1 do BIT[i] = 2 ^ i end

-- What is asked for, by its text. A library keeps it from call to call.
local shapes, shapes_count = {}, 0

local function make_shape(text)
  local action, signature, amount, rest =
    match(text, '^(%l+) (n:(%d+):%d+:%d+:%d+) (.+)$')
  local shape = {takes = action == 'take', signature = signature, amount = amount + 0}
  if shape.takes then
    local units, ttl, length = match(rest, '^(%d+) (%d+) (%d+)$')
    shape.units, shape.ttl, shape.length = units + 0, ttl + 0, length + 0
    -- How long the state lives that an untouched budget becomes.
    local needed = shape.ttl + HOLD_REMEMBERED
    shape.first_px = px_of(floor(few_lives_until(needed, 0) / 1000) + 2)
    shape.first_line = format('\n%d ', shape.units)
  else
    local units, length = match(rest, '^(%d+) (%d+)$')
    shape.units, shape.length = units + 0, length + 0
  end
  if shapes_count == CHECKS_MAX then shapes, shapes_count = {}, 0 end
  shapes[text], shapes_count = shape, shapes_count + 1
  return shape
end

-- Everything that holds which are taken now have in common.
local function prepare(shape, now)
  local ends = now + shape.ttl
  shape.ends, shape.data = ends, few_data(ends, now, shape.units, 'r')
  shape.first = pack_few(SLOTS_HEAD, 104, 1, 1, shape.units, ends, now, ends, ends,
                         few_lives_until(ends + HOLD_REMEMBERED, now), SLOTS_END) .. '\128'
  shape.line = shape.first_line .. format('%d', ends)
end

-- The last expiry of the holds with these bits.
local function latest_of(value, live)
  local latest, at = 0, SLOTS_SIZE
  while true do
    local _, stop, number, expires = find(value, '([\128-\159])\2[ -~]+\3(%d+) ', at + 1)
    if not stop then return latest end
    expires = expires + 0
    if floor(live / BIT[byte(number) - 128]) % 2 == 1 and expires > latest then latest = expires end
    at = stop
  end
end

-- Takes units; returns the line of the reply, or nothing if the state is not plain.
local function take(shape, key, value, id, now)
  if value == false then
    -- MGET returns nothing for a sorted set, either; but NX keeps SET from overwriting one.
    if shape.units > shape.amount then return end
    local written = rpcall('SET', key, shape.first .. id .. shape.data, 'PX', shape.first_px, 'NX')
    return written and written.ok and shape.line
  end
  if type(value) ~= 'string' or #value <= SLOTS_SIZE then return end
  local kind, count, live, units, last, at, due, latest, lives_until, stop =
    unpack_few(SLOTS_HEAD, value)
  units = units + shape.units
  if kind ~= 104 or stop ~= SLOTS_END or count >= FEW_HOLDS_MAX or units > shape.amount or at > now or
     (due <= now and live > 0) or last - now > HOLD_TTL_MAX or last + HOLD_REMEMBERED <= now or
     latest > last or live >= BIT[count] or find(value, id, SLOTS_SIZE, true) then
    return
  end
  local ends = shape.ends
  if live == 0 or ends < due then due = ends end
  if ends > latest then latest = ends end
  if ends > last then last = ends end
  local needed, moves = last + HOLD_REMEMBERED, false
  if needed > lives_until then moves, lives_until = true, few_lives_until(needed, now) end
  local head = pack_few(SLOTS_HEAD, 104, count + 1, live + BIT[count], units, last, now, due, latest,
                        lives_until, SLOTS_END)
  local record = char(128 + count) .. id .. shape.data
  if moves then
    local written = rpcall('PSETEX', key, px_of(floor((lives_until - now) / 1000) + 2),
                           head .. sub(value, SLOTS_SIZE + 1) .. record)
    if written.err then return end
  else
    -- By the same command, which then is allowed twice or not at all.
    local written = rpcall('SETRANGE', key, format('%d', #value), record)
    if type(written) == 'table' then return end
    rpcall('SETRANGE', key, '0', head)
  end
  if live == 0 and units == shape.units and latest == ends then return shape.line end
  return format('\n%d %d', units, latest)
end

-- Ends a hold in the same way.
local function release(key, value, id, now)
  if type(value) ~= 'string' or #value <= SLOTS_SIZE then return end
  local kind, count, live, units, last, at, due, latest, lives_until, stop =
    unpack_few(SLOTS_HEAD, value)
  if kind ~= 104 or stop ~= SLOTS_END or count > FEW_HOLDS_MAX or at > now or due <= now or
     last - now > HOLD_TTL_MAX or latest > last or units > EXACT_MAX then
    return
  end
  local first, stops = find(value, id, SLOTS_SIZE, true)
  local bit = first and BIT[byte(value, first - 1) - 128]
  if not bit or floor(live / bit) % 2 == 0 then return end
  live = live - bit
  local line = '\n0 0'
  if live == 0 then
    units, due, latest = 0, 0, 0
  else
    local expires, own = match(value, '^(%d+) %d+ (%d+)', stops + 1)
    if not own or own + 0 > units then return end
    units = units - own
    if expires + 0 == latest then latest = latest_of(value, live) end
    if latest > last then return end
    line = format('\n%d %d', units, latest)
  end
  local written = rpcall('SETRANGE', key, '0',
                         pack_few(SLOTS_HEAD, 104, count, live, units, last, now, due, latest,
                                  lives_until, SLOTS_END))
  if type(written) == 'number' then return line end
end

-- What decide_slots has left to sluice.lua; see `rest`. The values are the key's number, the shape and
-- the id.
local rest_of_slots

local function decide_slots(keys, args)
  rest_of_slots = nil
  if args[1] ~= 'slots' then return end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if now > TIME_MAX then return TOO_LATE end
  local own = {}
  for i = 3, #args do
    local shape = shapes[args[i]] or make_shape(args[i])
    if shape.takes then prepare(shape, now) end
    own[125 + i], own[189 + i] = shape, shape
  end
  local parts, left, operations, at = {time[1] .. ' ' .. time[2]}, {}, args[2], 1
  local values = now + HOLD_TTL_MAX <= TIME_MAX and rpcall('MGET', unpack(keys)) or {}
  for i = 1, #keys do
    local number = byte(operations, at)
    local shape, key, value = own[number], keys[i], values[i]
    local id = sub(operations, at + 1, at + shape.length)
    at = at + 1 + shape.length
    if number >= 192 then
      -- If one waits, it may be of the same key.
      if left[1] then value = nil else value = rpcall('GET', key) end
    end
    local line
    if shape.takes then
      line = take(shape, key, value, id, now)
    else
      line = release(key, value, id, now)
    end
    parts[i + 1] = line or ''
    if not line then left[#left + 1], left[#left + 2], left[#left + 3] = i, shape, id end
  end
  if not left[1] then return concat(parts) end
  rest_of_slots = {parts = parts, now = now, left = left}
end
