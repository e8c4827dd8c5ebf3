-- SPDX-License-Identifier: Apache-2.0
-- The first half of the Redis store's only program; sluice.lua is the second, and says what it is
-- called with. Here is the most common call, one check of one state that is not a log: one read, one
-- write, and nothing made but what they need. It decides as the kernels of sluice.lua do. Whatever is
-- not plain, such as another limit's state, one with a journal or from a clock that was ahead, or an
-- error, is left to them; nothing has been written then.

local floor, format, match = math.floor, string.format, string.match
local rpcall = redis.pcall

-- core::kExactMax and kTimeMax.
local EXACT_MAX, TIME_MAX = 9007199254740991, 4503599627370495

-- Checks that were asked for, by their argument. A library keeps them from call to call.
local singles, singles_count = {}, 0
local SINGLES_MAX = 1024

local function make_single(argument)
  local signature, kind, amount, unit, rate, tick, cost =
    match(argument, '^((%l):(%d+):(%d+):(%d+):(%d+)) (%d+)$')
  amount, unit, cost = tonumber(amount), tonumber(unit), tonumber(cost)
  local single = {kind = kind, amount = amount, unit = unit, rate = tonumber(rate), tick = tonumber(tick),
                  cost = cost, whole = amount * unit, takes = cost * unit, head = signature .. ' ',
                  level_min = amount * unit - EXACT_MAX,
                  count_max = 256 * amount < 70368744177663 and 256 * amount or 70368744177663,
                  -- The state as text, and its numbers. Nothing in a signature needs escaping.
                  pattern = '^' .. signature ..
                            (kind == 'b' and ' ((-?%d+) (%d+))$' or
                             kind == 'w' and ' ((%d+) (%d+))$' or ' ((%d+) (%d+) (%d+))$')}
  if singles_count == SINGLES_MAX then singles, singles_count = {}, 0 end
  singles[argument], singles_count = single, singles_count + 1
  return single
end

-- Numbers read as text become numbers by `+ 0`, which is faster than tonumber.
local function decide_single(keys, args)
  local single = singles[args[1]] or make_single(args[1])
  local kind = single.kind
  if kind == 'l' then return end
  local time = redis.call('TIME')
  local now, tick = time[1] * 1000000 + time[2], single.tick
  if now > TIME_MAX then return end
  local ticks = tick == 1 and now or floor(now / tick)
  local value = rpcall('GET', keys[1])
  local state, a, b, c = '', nil, nil, nil
  if value then
    if type(value) ~= 'string' then return end
    state, a, b, c = match(value, single.pattern)
    if not state then return end
    a, b = a + 0, b + 0
  end
  local next_value, ends  -- `ends`: when the next state equals an untouched budget, in ticks.
  if kind == 'b' then
    local level = single.whole
    if a then
      if a > level or a < single.level_min or b > ticks then return end
      local refilled = (ticks - b) * single.rate
      if refilled < level - a then level = a + refilled end
    end
    if level >= single.takes then
      level = level - single.takes
      next_value = format('%s%d %d', single.head, level, ticks)
      ends = ticks - floor((level - single.whole) / single.rate)
    end
  elseif kind == 'w' then
    local unit = single.unit
    local start, count = ticks - ticks % unit, 0
    if a then
      if a > start or a % unit ~= 0 or b > EXACT_MAX then return end
      if a == start then count = b end
    end
    if count + single.cost <= single.amount then
      next_value, ends = format('%s%d %d', single.head, start, count + single.cost), start + unit
    end
  else
    local unit = single.unit
    local window, previous, current = floor(ticks / unit), 0, 0
    if a then
      c = c + 0
      if a > window or b > single.count_max or c > single.count_max then return end
      if a == window then previous, current = b, c elseif a == window - 1 then previous = c end
    end
    local used = previous * (unit - ticks % unit) + current * unit
    if single.whole - used >= single.takes then
      next_value = format('%s%d %d %d', single.head, window, previous, current + single.cost)
      ends = (window + 2) * unit
    end
  end
  if not next_value then return '0 ' .. time[1] .. ' ' .. time[2] .. ' ' .. state end
  local ms = floor((ends * tick - now) / 1000) + 2
  local written = rpcall('PSETEX', keys[1], format('%d', ms < 1e15 and ms or 1e15), next_value)
  if not written.err then return '1 ' .. time[1] .. ' ' .. time[2] .. ' ' .. state end
end
