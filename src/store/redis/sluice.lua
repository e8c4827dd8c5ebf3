-- SPDX-License-Identifier: Apache-2.0
-- The one script of the Redis store: decides groups of charges atomically, at one moment, and writes
-- what was admitted. It mirrors the kernels in src/core; where a name there differs, a comment says
-- so. Change both, and the conformance tests, together.
--
-- KEYS   One state for each charge, in the order of the charges in ARGV. All are declared: the script
--        touches nothing else.
-- ARGV   now       Microseconds since the epoch, for tests and replay; '' for the server's TIME.
--        limits    How many follow, each as five arguments:
--          signature amount unit rate tick
--                  The signature is 'kind:amount:unit:rate:tick', kind one of
--                    b bucket    w fixed window    c sliding window counter    l sliding window log
--                  and the numbers are those of sluice::Limit, the tick in microseconds.
--        Then runs of groups, to the end. A run is
--          action groups charges repeat (limit cost){charges}
--                  `groups` groups of `charges` charges each. Every group is one request, asked
--                  `repeat` times in a row; `limit` counts from 1. No state occurs twice in a group.
--                  The action is
--                    check   take all costs, or nothing if any does not fit
--                    hold    the same, to be given back perhaps
--                    debit   take of each cost as much as fits
--                    look    take nothing, and say what a check would
--                    refund  give back what a hold took, of (limit cost when){charges}, where that
--                            is the moment of the hold in microseconds: the reply's now, or the
--                            state's newest time if that is later
-- Reply  now, then for each group: how many of its `repeat` were admitted, or -n if the n-th of its
--        keys holds something else; and for each charge the state before, from which the caller
--        computes all that it reports.
--          bucket    level, time           window   start, count
--          counter   window, previous, current
--          log       used, newest, oldest, leaves: units in the window, when the newest and the
--                    oldest of them were taken, and if one was not admitted, when that was taken
--                    which must leave for it to fit
--        The second number is -1 for an untouched budget. A refund replies with no state, and with 0
--        if something stays taken.
--
-- Numbers are doubles that stay integers below 2^53; quotients are floored, which is exact there.
-- Never join numbers with '..', which keeps 14 digits; '%d' keeps all, and is the fastest way.
-- A denial writes nothing. Every write sets the expiry in the same command (a log: in the same
-- script), no earlier than the state would equal an untouched budget. A state that was written under
-- other numbers is carried over when it is next looked at: what was used stays used. See
-- core/convert.h, Shard::Convert and docs/adr/0009.

local floor, concat = math.floor, table.concat
local format, match, gmatch, find = string.format, string.match, string.gmatch, string.find
local call = redis.call

-- A key of another type is an answer; any other error, such as a missing permission, is one for the
-- caller: to take it for a state would let everything pass.
local function pcall(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and not find(reply.err, 'WRONGTYPE', 1, true) then
    error(reply)
  end
  return reply
end

-- A clock that is given runs apart from the server's: state must outlive the steps of a test.
local injected = ARGV[1] ~= ''
local now
if injected then
  now = tonumber(ARGV[1])
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local slack_ms = injected and 86400000 or 1

local function make_limit(signature, amount, unit, rate, tick)
  amount, unit, rate, tick = tonumber(amount), tonumber(unit), tonumber(rate), tonumber(tick)
  return {signature = signature, kind = signature:sub(1, 1), amount = amount, unit = unit,
          rate = rate, tick = tick, whole = amount * unit, head = signature .. ' ',
          body = #signature + 2, ticks = floor(now / tick)}
end

-- Milliseconds for PX until a moment in microseconds. Redis takes no more than 2^63; this is 31,000
-- years.
local server_now = now
local function ttl(micros)
  local ms = floor((micros - server_now) / 1000) + 1 + slack_ms
  if ms < 1 then ms = 1 elseif ms > 1e15 then ms = 1e15 end
  return format('%d', ms)
end

-- core::Instant: the moment in the limit's ticks, not before the state's newest time.
local function ticks_at(limit, newest)
  local ticks = limit.tick == 1 and now or floor(now / limit.tick)
  return (newest and newest > ticks) and newest or ticks
end

-- Whether the server's clock was set back since a state was written, which is so many ticks ahead of
-- it, and takes `window` ticks to recover: holding time for it would lock its key out. Less than a
-- second may be other servers of a Cluster. Time that is given has no order. See docs/adr/0008.
local function was_set_back(ahead, window, tick)
  return ahead > window and ahead * tick > 1000000 and not injected
end

-- A state is three numbers, as far as its kernel has so many, and a journal or nil. Each kernel:
--   look(limit, state…)    how many whole units are available, and the state as it is now
--   encode(limit, state…)  a state as it is stored, and when it expires
--   take(limit, units, hold, state…)  the state less `units`, which may be given back if `hold`
--   used(limit, state…)    how many units are used now, rounded up, and the state's newest time
--   start(limit, used)     a state from which `used` were taken now, perhaps more than there are
--   carry(from, limit, state…)  a state under a limit that counts in the same units
--   give(limit, units, when, state…)  the state as if `units` had never been taken from it, at that
--                          moment; nothing if it does not know of them
local kernel = {}
local EXACT_MAX = 9007199254740991

local function smaller(a, b) return a < b and a or b end

-- The moment in microseconds, not before the state's newest time in ticks.
local function moment(limit, newest)
  local micros = newest * limit.tick
  return micros > now and micros or now
end

-- A journal says what may be given back: what is on hold in this very state, and not in one that was
-- there before it was reset. It has a ' moment+units' for each moment in which something was held,
-- forgets those that are older than anybody waits, and when it is long, the oldest.
local JOURNAL_MAX, HOLD_MAX = 4096, 60000000

local function is_stale(journal, at, oldest) return #journal > JOURNAL_MAX or at - oldest > HOLD_MAX end

local function note(journal, hold, at, units)
  if not hold and not journal then return end
  journal = journal or ';'
  if hold then
    local before, time, already = match(journal, '^(.*) (%d+)%+(%d+)$')
    if tonumber(time) == at then journal, units = before, units + already end
    journal = journal .. format(' %d+%d', at, units)
  end
  while journal ~= ';' and is_stale(journal, at, match(journal, '^; (%d+)')) do
    journal = ';' .. match(journal, '^; %d+%+%d+(.*)$')
  end
  return journal ~= ';' and journal or nil
end

-- Whether `units` are on hold since `when`, and the journal without them.
local function unnote(journal, when, units)
  local before, held, rest = match(journal or '', format('^(.*) %d%%+(%%d+)(.*)$', when))
  if not held or tonumber(held) < units then return false end
  if tonumber(held) > units then before = before .. format(' %d+%d', when, held - units) end
  journal = before .. rest
  return true, journal ~= ';' and journal or nil
end

-- core::LevelAt
local function refill(limit, level, ticks)
  local refilled = ticks * limit.rate
  return refilled >= limit.whole - level and limit.whole or level + refilled
end

-- What a bucket would hold without a charge depends on whether it would have been full since, and
-- lost what flowed in. So its journal has all that was taken since the oldest hold, ' moment:units'
-- if nothing of it is on hold, and begins with the level before. Giving back does the sums again.
local function ticks_between(limit, from, to)
  return floor(to / limit.tick) - floor(from / limit.tick)
end

local function tidy_bucket(limit, at, level, entries)
  while entries ~= '' do
    local time, mark, units, rest = match(entries, '^ (%d+)([:+])(%d+)(.*)$')
    if mark == '+' and not is_stale(entries, at, time) then
      return format(';%d', level) .. entries
    end
    local next_time = match(rest, '^ (%d+)')
    level = level - units * limit.unit
    if next_time then level = refill(limit, level, ticks_between(limit, time, next_time)) end
    entries = rest
  end
end

local function note_bucket(limit, journal, hold, at, level, units)
  if not journal then return format(';%d %d+%d', level, at, units) end
  local first_level, entries = match(journal, '^;(-?%d+)(.*)$')
  local before, time, mark, already = match(entries, '^(.*) (%d+)([:+])(%d+)$')
  if tonumber(time) == at then
    entries, units, hold = before, units + already, hold or mark == '+'
  end
  entries = entries .. format(' %d%s%d', at, hold and '+' or ':', units)
  return tidy_bucket(limit, at, tonumber(first_level), entries)
end

-- core/bucket.h
kernel.b = {
  look = function(limit, level, time, _, journal)
    local ticks = ticks_at(limit, time)
    if not level then return limit.amount, limit.whole, ticks end
    level = refill(limit, level, ticks - time)
    return level > 0 and floor(level / limit.unit) or 0, level, ticks, nil, journal
  end,
  encode = function(limit, level, time, _, journal)
    local whole_in = -floor(-(limit.whole - level) / limit.rate)
    local value = format('%s%d %d', limit.head, level, time)
    return journal and value .. journal or value, ttl((time + whole_in) * limit.tick)
  end,
  take = function(limit, units, hold, level, time, _, journal)
    if hold or journal then
      journal = note_bucket(limit, journal, hold, moment(limit, time), level, units)
    end
    return level - units * limit.unit, time, nil, journal
  end,
  used = function(limit, level, time)
    local _, now_level, ticks = kernel.b.look(limit, level, time)
    return -floor(-(limit.whole - now_level) / limit.unit), ticks * limit.tick
  end,
  start = function(limit, used)
    return limit.whole - smaller(used, floor(EXACT_MAX / limit.unit)) * limit.unit, ticks_at(limit)
  end,
  -- Under another capacity it would have been full at other moments: what is on hold stays taken.
  carry = function(from, limit, level, time)
    return limit.whole - smaller(from.whole - level, EXACT_MAX), time
  end,
  give = function(limit, units, when, level, time, _, journal)
    local first_level, entries = match(journal or '', '^;(-?%d+)(.*)$')
    local held = match(entries or '', format(' %d%%+(%%d+)', when))
    if not held or tonumber(held) < units then return end
    local kept, before = {}, nil
    first_level = tonumber(first_level)
    level = first_level
    for at, mark, taken in gmatch(entries, ' (%d+)([:+])(%d+)') do
      at, taken = tonumber(at), tonumber(taken)
      if before then level = refill(limit, level, ticks_between(limit, before, at)) end
      if at == when then
        taken = taken - units
        if taken == 0 then mark = ':' end
      end
      level, before = level - taken * limit.unit, at
      kept[#kept + 1] = format(' %d%s%d', at, mark, taken)
    end
    return level, time, nil, tidy_bucket(limit, moment(limit, time), first_level, concat(kept))
  end,
}

-- core/fixed_window.h
kernel.w = {
  look = function(limit, start, count, _, journal)
    local ticks = ticks_at(limit, start)
    local current = ticks - ticks % limit.unit
    if start ~= current then count, journal = 0, nil end
    return limit.amount - count, current, count, nil, journal
  end,
  encode = function(limit, start, count, _, journal)
    local value = format('%s%d %d', limit.head, start, count)
    return journal and value .. journal or value, ttl((start + limit.unit) * limit.tick)
  end,
  take = function(limit, units, hold, start, count, _, journal)
    return start, count + units, nil, note(journal, hold, moment(limit, start), units)
  end,
  used = function(limit, start, count)
    local _, _, now_count = kernel.w.look(limit, start, count)
    return now_count, start * limit.tick
  end,
  start = function(limit, used)
    local _, start = kernel.w.look(limit)
    return start, used
  end,
  carry = function(from, limit, start, count, _, journal) return start, count, nil, journal end,
  give = function(limit, units, when, start, count, _, journal)
    local known, rest = unnote(journal, when, units)
    if known then return start, count - smaller(units, count), nil, rest end
  end,
}

-- core/window_counter.h
local function count_max(limit) return smaller(70368744177663, 256 * limit.amount) end

-- ceil(count * left / unit), where the product may not be exact: bit by bit, as on paper.
local function share_of(count, left, unit)
  if count * left <= EXACT_MAX then return -floor(-(count * left) / unit) end
  local whole, rest = 0, 0
  for bit = 45, 0, -1 do
    whole, rest = 2 * whole, 2 * rest
    if rest >= unit then whole, rest = whole + 1, rest - unit end
    if floor(count / 2 ^ bit) % 2 == 1 then rest = rest + left end
    if rest >= unit then whole, rest = whole + 1, rest - unit end
  end
  return rest > 0 and whole + 1 or whole
end

kernel.c = {
  look = function(limit, window, previous, current, journal)
    local unit = limit.unit
    local ticks = ticks_at(limit, window and window * unit)
    local number = floor(ticks / unit)
    if window ~= number then
      if window ~= number - 1 then current, journal = 0, nil end
      previous, current = current, 0
    end
    local free = limit.whole - (previous * (unit - ticks % unit) + current * unit)
    return free > 0 and floor(free / unit) or 0, number, previous, current, journal
  end,
  encode = function(limit, window, previous, current, journal)
    local value = format('%s%d %d %d', limit.head, window, previous, current)
    return journal and value .. journal or value, ttl((window + 2) * limit.unit * limit.tick)
  end,
  take = function(limit, units, hold, window, previous, current, journal)
    return window, previous, current + units,
           note(journal, hold, moment(limit, window * limit.unit), units)
  end,
  used = function(limit, window, previous, current)
    local unit = limit.unit
    local _, _, before, counted = kernel.c.look(limit, window, previous, current)
    local left = unit - ticks_at(limit, window * unit) % unit
    return share_of(before, left, unit) + counted, window * unit * limit.tick
  end,
  start = function(limit, used)
    local _, window = kernel.c.look(limit)
    return window, 0, smaller(used, count_max(limit))
  end,
  carry = function(from, limit, window, previous, current, journal)
    local most = count_max(limit)
    if previous > most or current > most then journal = nil end  -- It may not be counted any more.
    return window, smaller(previous, most), smaller(current, most), journal
  end,
  give = function(limit, units, when, window, previous, current, journal)
    local known, rest = unnote(journal, when, units)
    local windows_ago = window - floor(floor(when / limit.tick) / limit.unit)
    if known and windows_ago == 0 then
      return window, previous, current - smaller(units, current), rest
    elseif known and windows_ago == 1 then
      return window, previous - smaller(units, previous), current, rest
    end
  end,
}

-- SET with PX does the same a twentieth slower.
local function write(key, limit, ...)
  local value, px = kernel[limit.kind].encode(limit, ...)
  call('PSETEX', key, px, value)
end

-- core/window_log.h: a sorted set by time. A member is 'total units window': what was recorded before
-- it (modulo 2^53), its own units, and the window it was written under.
local MODULUS = EXACT_MAX + 1

local function entry(member)
  local total, units, window = match(member, '^(%d+) (%d+) (%d+)')
  return tonumber(total), tonumber(units), tonumber(window)
end

local function add(total, units)
  return total >= MODULUS - units and total - (MODULUS - units) or total + units
end

local function since(total, before)
  return total >= before and total - before or total + (MODULUS - before)
end

-- The log as it stands: {used, newest, oldest, total, units, member, base}, or nil if there is none,
-- or false if the key holds something else.
local function read_log(key, window)
  local last = pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last.err then return false end
  if #last == 0 then return nil end
  local log = {member = last[1], newest = tonumber(last[2])}
  log.total, log.units, log.window = entry(log.member)
  if not log.total then return false end
  if was_set_back(log.newest - now, window or log.window, 1) then
    call('DEL', key)
    return nil
  end
  log.now = log.newest > now and log.newest or now
  local live = call('ZRANGEBYSCORE', key, format('(%d', log.now - (window or log.window)), '+inf',
                    'WITHSCORES', 'LIMIT', 0, 1)
  log.base = live[1] and entry(live[1])
  log.oldest = tonumber(live[2])
  if log.oldest and not log.base then return false end
  log.used = log.base and since(add(log.total, log.units), log.base) or 0
  return log
end

local function take_log(key, limit, log, units)
  local at, total = now, 0
  if log then
    at = log.now
    call('ZREMRANGEBYSCORE', key, '-inf', format('%d', at - limit.unit))
    if log.newest == at then
      call('ZREM', key, log.member)
      total, units = log.total, log.units + units
    elseif log.used > 0 then
      total = add(log.total, log.units)
    end
  end
  call('ZADD', key, at, format('%d %d %d', total, units, limit.unit))
  local reply = redis.pcall('PEXPIRE', key, ttl(at + limit.unit))
  if reply == 1 then return end
  if not log then call('DEL', key) end  -- Nothing stays that does not expire.
  error(reply)
end

-- When the entry leaves with which `units` of the oldest have left.
local function leaves_at(key, limit, log, units)
  if not log or units > log.used then return log and log.now or now end
  local low = call('ZCOUNT', key, '-inf', format('%d', log.now - limit.unit))
  local high = call('ZCARD', key) - 1
  while low < high do
    local middle = floor((low + high) / 2)
    local total, own = entry(call('ZRANGE', key, middle, middle)[1])
    if not total then return log.now end  -- Not ours: the longest wait there can be.
    if since(add(total, own), log.base) >= units then high = middle else low = middle + 1 end
  end
  return tonumber(call('ZRANGE', key, low, low, 'WITHSCORES')[2])
end

-- What is no longer in the log is not taken, either.
local function give_log(key, units, at)
  local after = pcall('ZRANGEBYSCORE', key, format('%d', at), '+inf', 'WITHSCORES')
  if after.err then return false end
  if tonumber(after[2]) ~= at then return true end
  for i = 1, #after, 2 do
    if not entry(after[i]) then return false end
  end
  -- Totals of later entries count it, and their members are named after them. All are taken out
  -- before any is put back, since a new name may be another's old one.
  call('ZREMRANGEBYSCORE', key, format('%d', at), '+inf')
  local newest, under
  for i = 1, #after, 2 do
    local total, own, window = entry(after[i])
    if i == 1 then
      units = smaller(units, own)
      own = own - units
    else
      total = since(total, units)
    end
    if own > 0 then
      newest, under = tonumber(after[i + 1]), window
      call('ZADD', key, newest, format('%d %d %d', total, own, window))
    end
  end
  if newest then call('PEXPIRE', key, ttl(newest + under)) end
  return true
end

-- What a string holds: the limit it was written under and the state; nothing if it is not ours.
local function parse(value)
  local signature, amount, unit, rate, tick, a, b, c, journal =
    match(value, '^([bwc]:(%d+):(%d+):(%d+):(%d+)) (-?%d+) (%d+) ?(%d*)(;?[%d:+ -]*)$')
  if not signature then return end
  local limit = make_limit(signature, amount, unit, rate, tick)
  c = tonumber(c)
  local divides = limit.unit > 0 and limit.tick > 0 and (limit.kind ~= 'b' or limit.rate > 0)
  if not divides or (limit.kind == 'c') ~= (c ~= nil) then return end
  return limit, tonumber(a), tonumber(b), c, journal ~= '' and journal or nil
end

-- Whether states under both limits are counted in the same units, so that they carry over as they
-- are but for the amount.
local function same_units(a, b)
  if a.kind ~= b.kind then return false end
  if a.kind == 'b' then return a.unit == b.unit and a.rate == b.rate and a.tick == b.tick end
  return a.unit * a.tick == b.unit * b.tick
end

-- Runs a function at a moment that is not before `newest`.
local function not_before(newest, run)
  if newest > now then now = newest end
  local a, b, c = run()
  now = server_now
  return a, b, c
end

-- Whether a key was found to hold something that is not ours. Its request fails, and no other.
local foreign = false

-- Whether the clock was set back since a state was written whose newest time, in ticks, is ahead.
local function is_void(limit, newest)
  local window = limit.kind == 'b' and -floor(-limit.whole / limit.rate) or limit.unit
  return was_set_back(newest - limit.ticks, window, limit.tick)
end

-- The state of a key under `limit`, or nothing for an untouched budget. `value` is what the key holds,
-- if that is known.
local function read(key, limit, value)
  value = value or pcall('GET', key)
  if not value then return end
  local kind, own = limit.kind, kernel[limit.kind]
  local a, b, c, journal
  if type(value) == 'table' then  -- An error: it is a log.
    local log = read_log(key)
    if not log then
      foreign = log == false
      return
    end
    a, b, c = not_before(log.now, function() return own.start(limit, log.used) end)
    write(key, limit, a, b, c)
  elseif find(value, limit.head, 1, true) == 1 then
    if kind == 'c' then
      a, b, c, journal = match(value, '^(%d+) (%d+) (%d+)(.*)', limit.body)
      c = tonumber(c)
    else
      a, b, journal = match(value, '^(-?%d+) (%d+)(.*)', limit.body)
    end
    a, b = tonumber(a), tonumber(b)
    if journal == '' then journal = nil end
    if not a or (journal and not parse(value)) then
      foreign = true
      return
    end
  else
    local from
    from, a, b, c, journal = parse(value)
    if not from then
      foreign = true
      return
    end
    if same_units(from, limit) then
      a, b, c, journal = own.carry(from, limit, a, b, c, journal)
    else
      journal = nil
      local used, newest = kernel[from.kind].used(from, a, b, c)
      a, b, c = not_before(newest, function() return own.start(limit, used) end)
    end
    write(key, limit, a, b, c, journal)
  end
  local newest = kind == 'b' and b or kind == 'w' and a or a * limit.unit
  if newest > limit.ticks and is_void(limit, newest) then return end
  return a, b, c, journal
end

-- The same for a log: see read_log.
local function read_under(key, limit)
  local log = read_log(key, limit.unit)
  if log == false then
    local value = pcall('GET', key)
    local from, a, b, c = parse(type(value) == 'string' and value or '')
    if not from then
      foreign = true
      return nil
    end
    local used, newest = kernel[from.kind].used(from, a, b, c)
    call('DEL', key)
    if used == 0 then return nil end
    not_before(newest, function() take_log(key, limit, nil, used) end)
    log = read_log(key, limit.unit)
  elseif log and log.window ~= limit.unit then
    -- The newest entry says which window the log is under.
    call('ZREM', key, log.member)
    log.member = format('%d %d %d', log.total, log.units, limit.unit)
    call('ZADD', key, log.newest, log.member)
    call('PEXPIRE', key, ttl(log.newest + limit.unit))
  end
  return log
end

-- Under the limit that the state is under by now. Where that counts in other units, what was taken
-- stays taken. Says whether nothing did.
local function give_back(key, limit, units, when)
  if limit.kind == 'l' then return give_log(key, units, when) end
  local value = pcall('GET', key)
  if not value then return true end
  local under, a, b, c, journal = parse(type(value) == 'string' and value or '')
  if not under or not same_units(under, limit) then return false end
  a, b, c, journal = kernel[limit.kind].give(under, units, when, a, b, c, journal)
  if a then write(key, under, a, b, c, journal) end
  return a ~= nil
end

local limits = {}
local at = 3
for i = 1, tonumber(ARGV[2]) do
  limits[i] = make_limit(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  at = at + 5
end

local reply, filled = {now}, 1
local key_at = 0
local states = {}

while ARGV[at] do
  local action = ARGV[at]
  local holds, looks = action == 'hold', action == 'look'
  local checks = holds or action == 'check'
  local groups, charges, times =
    tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local first, width = at + 4, action == 'refund' and 3 or 2
  local under, costs = {}, {}
  for i = 1, charges do
    under[i] = limits[tonumber(ARGV[first + width * (i - 1)])]
    costs[i] = tonumber(ARGV[first + width * (i - 1) + 1])
  end
  at = first + width * charges

  if action == 'refund' then
    for _ = 1, groups do
      local given = 1
      for i = 1, charges do
        local when = tonumber(ARGV[first + width * i - 1])
        if not give_back(KEYS[key_at + i], under[i], costs[i], when) then given = 0 end
      end
      filled = filled + 1
      reply[filled] = given
      key_at = key_at + charges
    end
    groups = 0
  end

  -- The common case, unrolled: one limit that is not a log. No state occurs twice in such a run.
  local only = checks and charges == 1 and under[1].kind ~= 'l' and costs[1] > 0 and under[1]
  if only then
    local cost, own = costs[1], kernel[only.kind]
    local look, take, encode = own.look, own.take, own.encode
    local counts = only.kind == 'c'
    local function fitting(available)
      local fits = available > 0 and (cost == 1 and available or floor(available / cost)) or 0
      return fits < times and fits or times
    end
    -- What becomes of every untouched budget.
    local _, start_a, start_b, start_c = look(only)
    local start_admitted = fitting(only.amount)
    local start_value, start_px =
      encode(only, take(only, start_admitted * cost, holds, start_a, start_b, start_c))
    foreign = false

    local values = groups > 1 and call('MGET', unpack(KEYS, key_at + 1, key_at + groups)) or
                   {pcall('GET', KEYS[key_at + 1])}
    for i = 1, groups do
      local key, known = KEYS[key_at + i], values[i]
      local admitted, a, b, c = start_admitted, 0, -1, 0
      -- MGET says nothing of a log, either; but NX keeps SET from writing over one.
      if known or not call('SET', key, start_value, 'PX', start_px, 'NX') then
        local journal
        a, b, c, journal = read(key, only, known)
        local available, now_a, now_b, now_c, now_journal = look(only, a, b, c, journal)
        admitted = fitting(available)
        if foreign then
          admitted, foreign = -1, false
        elseif admitted > 0 then
          local value, px =
            encode(only, take(only, admitted * cost, holds, now_a, now_b, now_c, now_journal))
          call('PSETEX', key, px, value)
        end
      end
      reply[filled + 1], reply[filled + 2], reply[filled + 3] = admitted, a or 0, b or -1
      filled = filled + 3
      if counts then
        filled = filled + 1
        reply[filled] = c or 0
      end
    end
    key_at = key_at + groups
    groups = 0
  end

  for _ = 1, groups do
    -- First look at all states; then take from all, or from none.
    local admitted, stranger = times, nil
    local head = filled + 1
    filled = head
    foreign = false
    for i = 1, charges do
      local key, limit, cost, state = KEYS[key_at + i], under[i], costs[i], states[i]
      if not state then
        state = {}
        states[i] = state
      end
      local available, a, b, c
      if limit.kind == 'l' then
        local log = read_under(key, limit)
        state.log = log
        a, b, c = log and log.used or 0, log and log.newest or -1, log and log.oldest or 0
        available = limit.amount - a
      else
        local journal
        a, b, c, journal = read(key, limit)
        available, state.a, state.b, state.c, state.journal =
          kernel[limit.kind].look(limit, a, b, c, journal)
      end
      if foreign and not stranger then stranger = i end
      reply[filled + 1], reply[filled + 2] = a or 0, b or -1
      filled = filled + 2
      if limit.kind == 'c' or limit.kind == 'l' then
        filled = filled + 1
        reply[filled] = c or 0
      end
      if limit.kind == 'l' then
        filled = filled + 1
        reply[filled] = 0
        state.leaves = filled
      end
      state.available = available > 0 and available or 0
      if cost > 0 and (checks or looks) then
        local fits = floor(state.available / cost)
        if fits < admitted then admitted = fits end
      end
    end
    reply[head] = stranger and -stranger or admitted

    for i = 1, stranger and 0 or charges do
      local key, limit, cost, state = KEYS[key_at + i], under[i], costs[i], states[i]
      local units = looks and 0 or admitted * cost
      if action == 'debit' then units = smaller(units, state.available) end
      if limit.kind == 'l' then
        local used = state.log and state.log.used or 0
        local must_leave = used - limit.amount + units + cost
        if (looks or admitted < times) and cost > 0 and must_leave > 0 then
          reply[state.leaves] = leaves_at(key, limit, state.log, must_leave)
        end
        if units > 0 then take_log(key, limit, state.log, units) end
      elseif units > 0 then
        local own = kernel[limit.kind]
        write(key, limit,
              own.take(limit, units, holds, state.a, state.b, state.c, state.journal))
      end
    end
    key_at = key_at + charges
  end
end

return reply
