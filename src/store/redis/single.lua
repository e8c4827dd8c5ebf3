-- SPDX-License-Identifier: Apache-2.0
-- The first part of the Redis store's only program; sluice.lua is the main one, and says what it is
-- called with. Here are the most common calls: checks of one state each that is not a log, at the
-- server's time. Reads and writes as little as it can, and makes nothing but what that needs. It
-- decides as the kernels of sluice.lua do. Whatever is not plain, such as another limit's state, one
-- with a journal or from a clock that was ahead, or an error, is left to them; nothing has been
-- written to that key then.

local floor, format, match, concat = math.floor, string.format, string.match, table.concat
local rpcall = redis.pcall

-- core::kExactMax and kTimeMax.
local EXACT_MAX, TIME_MAX = 9007199254740991, 4503599627370495
local TOO_LATE = {err = 'ERR the clock of Redis is past the year 2112'}

-- Zeros before TIME's microseconds, by how many digits they have.
local ZEROS = {'00000', '0000', '000', '00', '0', ''}

-- Checks that were asked for, by their argument. A library keeps them from call to call.
local checks, checks_count = {}, 0
local CHECKS_MAX = 1024

local function make_check(argument)
  local signature, kind, amount, unit, rate, tick, cost =
    match(argument, '^((%l):(%d+):(%d+):(%d+):(%d+)) (%d+)$')
  if not signature then return end
  amount, unit, rate, tick, cost =
    tonumber(amount), tonumber(unit), tonumber(rate), tonumber(tick), tonumber(cost)
  local whole = amount * unit
  local check = {signature = signature, kind = kind, amount = amount, unit = unit, rate = rate,
                 tick = tick, cost = cost, whole = whole, takes = cost * unit,
                 head = signature .. ' ', level_min = whole - EXACT_MAX,
                 count_max = 256 * amount < 70368744177663 and 256 * amount or 70368744177663,
                 -- The state as text, and its numbers. Nothing in a signature needs escaping.
                 pattern = '^' .. signature ..
                           (kind == 'b' and ' ((-?%d+) (%d+))$' or
                            kind == 'w' and ' ((%d+) (%d+))$' or ' ((%d+) (%d+) (%d+))$')}
  -- An untouched bucket that counts in microseconds: its state after the check, but for the time, and
  -- how long that lives, are always the same.
  if kind == 'b' and tick == 1 and check.takes <= whole then
    check.first = format('%s%d ', check.head, whole - check.takes)
    check.first_px = format('%d', floor(-floor(-check.takes / rate) / 1000) + 2)
  end
  if checks_count == CHECKS_MAX then checks, checks_count = {}, 0 end
  checks[argument], checks_count = check, checks_count + 1
  return check
end

-- How often a check fits, of the times that it is asked, if it fits once.
local function fitting(available, takes, times)
  local fits = floor(available / takes)
  return fits < times and fits or times
end

-- By kind: how many of `times` checks are admitted, the state afterwards, and how many milliseconds
-- that lives: until it equals an untouched budget. Only the first if it is 0. Nothing if the state is
-- not plain. Its numbers are texts, and false if the budget is untouched. Texts become numbers by
-- `+ 0`, which is faster than tonumber.
local decide = {
  b = function(check, now, times, a, b)
    local level, takes, tick = check.whole, check.takes, check.tick
    local whole, ticks = level, tick == 1 and now or floor(now / tick)
    if a then
      a, b = a + 0, b + 0
      if a > whole or a < check.level_min or b > ticks then return end
      local refilled = (ticks - b) * check.rate
      if refilled < whole - a then level = a + refilled end
    end
    if takes > level then return 0 end
    local admitted = times == 1 and 1 or fitting(level, takes, times)
    level = level - admitted * takes
    local ends = ticks - floor((level - whole) / check.rate)
    return admitted, format('%s%d %d', check.head, level, ticks),
           floor((ends * tick - now) / 1000) + 2
  end,
  w = function(check, now, times, a, b)
    local unit, tick, cost = check.unit, check.tick, check.cost
    local ticks = tick == 1 and now or floor(now / tick)
    local start, count = ticks - ticks % unit, 0
    if a then
      a, b = a + 0, b + 0
      if a > start or a % unit ~= 0 or b > EXACT_MAX then return end
      if a == start then count = b end
    end
    local free = check.amount - count
    if cost > free then return 0 end
    local admitted = times == 1 and 1 or fitting(free, cost, times)
    return admitted, format('%s%d %d', check.head, start, count + admitted * cost),
           floor(((start + unit) * tick - now) / 1000) + 2
  end,
  c = function(check, now, times, a, b, c)
    local unit, tick, takes = check.unit, check.tick, check.takes
    local ticks = tick == 1 and now or floor(now / tick)
    local window, previous, current = floor(ticks / unit), 0, 0
    if a then
      a, b, c = a + 0, b + 0, c + 0
      if a > window or b > check.count_max or c > check.count_max then return end
      if a == window then previous, current = b, c elseif a == window - 1 then previous = c end
    end
    local free = check.whole - (previous * (unit - ticks % unit) + current * unit)
    if takes > free then return 0 end
    local admitted = times == 1 and 1 or fitting(free, takes, times)
    return admitted,
           format('%s%d %d %d', check.head, window, previous, current + admitted * check.cost),
           floor(((window + 2) * unit * tick - now) / 1000) + 2
  end,
}

-- What decide_singles has left to sluice.lua: its reply so far in parts; the moment; and which
-- checks are still to be decided, three values each: the key's number, which is also its part's but
-- for the first, the check and its times.
local rest

-- Milliseconds as text for Redis, which accepts at most 2^63; the cap is 31,000 years.
local function px_of(ms) return format('%d', ms < 1e15 and ms or 1e15) end

-- Runs of checks, one for each key.
local function decide_singles(keys, args)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if now > TIME_MAX then return TOO_LATE end
  local parts, left, key_at = {time[1] .. ' ' .. time[2]}, {}, 0
  for at = 1, #args, 3 do
    local check = checks[args[at]] or make_check(args[at])
    local count, times = tonumber(args[at + 1] or #keys - key_at), tonumber(args[at + 2] or 1)
    local pattern, own = check.pattern, decide[check.kind]
    local first_admitted, first_value, first_ms = own(check, now, times, false)
    local first_px = first_value and px_of(first_ms)
    -- After a check that waits, others wait too: they may be of the same key.
    local waits = #left > 0
    local guesses = not waits and first_value and check.was_untouched
    local values = (waits or guesses) and {} or
                   rpcall('MGET', unpack(keys, key_at + 1, key_at + count))
    local untouched = 0
    for i = 1, count do
      local key, value = keys[key_at + i], values[i]
      if guesses then value = rpcall('SET', key, first_value, 'PX', first_px, 'NX', 'GET') end
      local admitted, state = nil, ''
      if value == false then
        untouched = untouched + 1
        if guesses then
          admitted = first_admitted
        elseif first_value then
          -- MGET returns nothing for a log, either; but NX keeps SET from overwriting one.
          local written = rpcall('SET', key, first_value, 'PX', first_px, 'NX')
          if written and written.ok then admitted = first_admitted end
        end
      elseif type(value) == 'string' then
        local text, a, b, c = match(value, pattern)
        if text then
          local next_value, ms
          state, admitted, next_value, ms = text, own(check, now, times, a, b, c)
          if next_value and rpcall('PSETEX', key, px_of(ms), next_value).err then admitted = nil end
        end
      end
      local part = key_at + i + 1
      if admitted == 1 then
        parts[part] = '\n1 ' .. state
      elseif admitted == 0 then
        parts[part] = '\n0 ' .. state
      elseif admitted then
        parts[part] = format('\n%d ', admitted) .. state
      else
        parts[part] = ''
        left[#left + 1], left[#left + 2], left[#left + 3] = key_at + i, check, times
      end
    end
    check.was_untouched = 4 * untouched >= 3 * count
    key_at = key_at + count
  end
  if #left == 0 then return concat(parts) end
  rest = {parts = parts, now = now, left = left}
end

local function first_of(check, time)
  return check.first .. time[1] .. ZEROS[#time[2]] .. time[2]
end

-- Decides what is plain; nothing if sluice.lua has to go on.
local function decide_plain(keys, args)
  rest = nil
  local check = checks[args[1]] or make_check(args[1])
  if not check then return end
  if keys[2] or args[2] then return decide_singles(keys, args) end
  local own = decide[check.kind]
  if not own then return end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if now > TIME_MAX then return TOO_LATE end
  local value
  if check.first then
    -- Where most budgets were untouched, this one may be as well: to write its first state unless
    -- there is one is then all that is to be done.
    if check.was_untouched then
      value = rpcall('SET', keys[1], first_of(check, time), 'PX', check.first_px, 'NX', 'GET')
    else
      value = rpcall('GET', keys[1])
      if not value and rpcall('PSETEX', keys[1], check.first_px, first_of(check, time)).err then
        return
      end
    end
    check.was_untouched = not value
    if not value then return '1 ' .. time[1] .. ' ' .. time[2] .. ' ' end
  else
    value = rpcall('GET', keys[1])
  end
  local state, a, b, c = '', false, nil, nil
  if value then
    if type(value) ~= 'string' then return end
    state, a, b, c = match(value, check.pattern)
    if not state then return end
  end
  local admitted, next_value, ms = own(check, now, 1, a, b, c)
  if admitted == 1 then
    if rpcall('PSETEX', keys[1], px_of(ms), next_value).err then return end
    return '1 ' .. time[1] .. ' ' .. time[2] .. ' ' .. state
  elseif admitted then
    return '0 ' .. time[1] .. ' ' .. time[2] .. ' ' .. state
  end
end
