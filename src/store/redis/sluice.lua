-- SPDX-License-Identifier: Apache-2.0
-- The only program of the Redis store, after single.lua and slots.lua and before holds.lua: decides
-- groups of charges atomically, at one moment, and writes what was admitted. It mirrors the kernels in
-- src/core; comments give the names that differ there. Change both, and the conformance tests, together.
--
-- Redis runs it as a function of a library, which is built once, by its first call; or as a script,
-- where there are no functions, which is built by every call. script.h puts both together. Therefore
-- everything that belongs to one call is set at its beginning, by decide_all.
--
-- KEYS   One state for each charge, in the order of the charges in ARGV. All are declared: the
--        script touches nothing else.
-- ARGV   now       Microseconds since the epoch, for tests and replay; '' for the server's TIME.
--        limits    How many follow, each by its signature, 'kind:amount:unit:rate:tick', kind one
--                  of
--                    b bucket    w fixed window    c sliding window counter    l sliding window log
--                    n concurrency    k calendar
--                  and the numbers are those of sluice::Limit, the tick in microseconds. Of a
--                  calendar, the rate stands for its windows and zone, and ' first middle last'
--                  follow: two windows that meet, in microseconds. If now lies in neither of them,
--                  the reply to the whole call is the error 'CALENDAR now', and nothing was done.
--        Then runs of groups, to the end. A run is
--          action groups charges repeat (limit cost){charges}
--                  `groups` groups of `charges` charges each. Every group is one request, asked
--                  `repeat` times in a row; `limit` counts from 1. No state occurs twice in one.
--                  The action is
--                    check   take all costs, or nothing if any does not fit
--                    hold    the same, but it may be refunded later
--                    debit   take as much of each cost as fits
--                    give    give back up to each cost of what was taken. Its arguments are
--                            (limit cost channel message){charges}, and it is not repeated
--                    look    take nothing, and reply as a check would
--                    reset   forget the states. Its arguments are (limit channel message){charges},
--                            and it is not repeated. Publishes each message first, unless the
--                            channel is ''
--                    refund  give back what a hold took. Its arguments are
--                            (limit cost when channel message){charges}, where `when` is the moment
--                            of the hold in microseconds: the reply's now, or the state's newest
--                            time if that is later
--                    reserve, foresee, settle, extend, list   see holds.lua
--                  Give and refund publish their messages afterwards, unless the channel is ''.
--        Or runs of checks, one for each key, of states that are not logs, at the server's TIME:
--          'signature cost' keys repeat
--                  The last run may lack its last two: it has all keys that are left, once each.
--        One check of one key may be of a log.
--        Or slots that are taken and released; see slots.lua.
-- Reply  now, then for each group: how many of its `repeat` were admitted, or -n if its n-th key
--        holds something else, or the text of an error that Redis returned; and for each charge
--        the state before (of a give: after), from which the caller computes everything that it
--        reports.
--          bucket    level, time           window   start, count
--          counter   window, previous, current
--          log       used, newest, oldest, leaves: units in the window, when the newest and the
--                    oldest of them were taken, and, if a request was not admitted, when the unit
--                    was taken that must leave for it to fit
--          concurrency   held, until: units on hold, and when the last of them expires
--          calendar  start, length, count
--        If any state of a group has holds, the first element is the text 'h admitted held…', with
--        what is on hold of each; of a bucket's level that counts as lying in it. See holds.lua.
--        The second number is -1 for an untouched budget. A refund returns no state, and 0 if
--        something stays taken. A reset returns no state, and how many states there were.
--        To runs of checks, one text: TIME's two numbers and, for each key, a line. It has how many
--        were admitted and the state before, if there was one; or -1; or '!' and an error; or, of a
--        state with holds, 'h admitted held' and, after a ';', the state.
--        To one check of one key, either the first form, or one text of numbers: how many were
--        admitted, TIME's two, and the state before, which is missing if the budget was untouched.
--
-- Every group stands alone: it reads and checks everything that it needs before it writes, and its
-- errors are its own answer. Nothing raises an error out of the script once a group has begun. The
-- one error that answers all groups is that of a replica, which takes no writes from anybody.
--
-- Numbers are doubles that stay integers below 2^53; quotients are floored, which is exact there.
-- Never join numbers with '..', which keeps 14 digits; '%d' keeps all, and is the fastest way. A
-- denial writes nothing. Every write sets the expiry in the same command (a log: in the same
-- script), no earlier than when the state would equal an untouched budget. A state that was written
-- under other numbers is carried over when it is next looked at: what was used stays used. See
-- core/kernel.h, Shard::Convert and docs/adr/0009.

local gmatch, gsub = string.gmatch, string.gsub
local SPAN_MAX = 4503599627370496  -- core::kSpanMax

-- The call: its keys and arguments, the moment in microseconds and whether the caller gave it, and
-- how much longer than needed states live.
local KEYS, ARGV
local now, server_now, injected, slack_ms

-- Raised if a key holds something that is not ours.
local FOREIGN = {}

local function is_wrong_type(reply) return find(reply.err, 'WRONGTYPE', 1, true) ~= nil end

-- The reply to a command. An error, such as a missing permission, becomes the answer to the group:
-- if it passed for a state, everything would be admitted.
local function ask(...)
  local reply = rpcall(...)
  if type(reply) == 'table' and reply.err then
    error(is_wrong_type(reply) and FOREIGN or reply.err, 0)
  end
  return reply
end

-- The same, but nil if the key has another type.
local function try(...)
  local reply = rpcall(...)
  if type(reply) == 'table' and reply.err then
    if is_wrong_type(reply) then return nil end
    error(reply.err, 0)
  end
  return reply
end

local function smaller(a, b) return a < b and a or b end
local function larger(a, b) return a > b and a or b end

-- How many numbers the state of each kind has.
local NUMBERS = {b = 2, w = 2, c = 3, l = 4, n = 2, k = 3}

local COUNT_MAX = 70368744177663  -- core::WindowCounter::kAmountMax, and core::Calendar::kAmountMax

local function make_limit(signature, amount, unit, rate, tick)
  amount, unit, rate, tick = tonumber(amount), tonumber(unit), tonumber(rate), tonumber(tick)
  local kind, whole = signature:sub(1, 1), amount * unit
  return {signature = signature, kind = kind, numbers = NUMBERS[kind],
          amount = amount, unit = unit, rate = rate, tick = tick, whole = whole,
          head = signature .. ' ', ticks = floor(now / tick),
          -- The largest values that a state under it can hold; see IsSound in src/core.
          ticks_max = floor(TIME_MAX / tick), level_min = whole - EXACT_MAX,
          count_max = smaller(COUNT_MAX, 256 * amount),
          -- Matches a string with such a state.
          pattern = '^' .. signature ..
                    (NUMBERS[kind] == 3 and ' (%d+) (%d+) (%d+)(.*)$' or ' (-?%d+) (%d+)(.*)$')}
end

-- Milliseconds for PX until a moment in microseconds. Redis accepts at most 2^63; this cap is
-- 31,000 years.
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

-- Whether the server's clock was set back since a state was written. The state is `ahead` ticks
-- ahead of the clock and takes `window` ticks to recover: waiting for it would lock its key out.
-- Less than a second may be due to other servers of a Cluster. Injected time has no order. See
-- docs/adr/0008.
local function was_set_back(ahead, window, tick)
  return ahead > window and ahead * tick > 1000000 and not injected
end

-- A state is up to three numbers, as many as its kernel has, and a journal or nil. Each kernel:
--   look(limit, state…)    how many whole units are available, and the state as it is now
--   encode(limit, state…)  a state as it is stored, and when it expires
--   take(limit, units, hold, state…)  the state less `units`, which may be refunded if `hold`
--   used(limit, state…)    how many units are used now, rounded up, and the state's newest time
--   start(limit, used)     a state from which `used` were taken now, perhaps more than there are
--   carry(from, limit, state…)  the state under a limit that counts in the same units
--   refund(limit, units, when, state…)  the state as if `units` had never been taken from it, at
--                          that moment; nothing if it does not know of them
--   give(limit, units, state…)  the state as it is now, after returning up to `units` of what was
--                          taken; nothing if nothing was. What is on hold stays taken from then
--                          on, because it may be part of what was returned
--   sound(limit, state…)   the newest time of a state that the arithmetic may trust, else false;
--                          see IsSound in core/kernel.h
local kernel = {}

-- The moment in microseconds, not before the state's newest time in ticks.
local function moment(limit, newest)
  local micros = newest * limit.tick
  return micros > now and micros or now
end

-- A journal records what may be refunded: what is on hold in this very state, not in one from
-- before a reset. It has a ' moment+units' for each moment with a hold. It forgets holds that are
-- older than anybody waits and, when it is long, the oldest.
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

-- Whether a journal has the right form. A bucket's begins with a level; see below.
local function is_journal(limit, journal)
  local bucket = limit.kind == 'b'
  local level, entries = match(journal, '^;(-?%d*)(.*)$')
  if not level or #entries == 0 or #entries > JOURNAL_MAX then return false end
  if bucket ~= (tonumber(level) ~= nil) or (not bucket and level ~= '') then return false end
  if bucket and not kernel.b.sound(limit, tonumber(level), 0) then return false end
  local most = bucket and limit.amount or EXACT_MAX
  local known = 0
  for at, mark, units in gmatch(entries, ' (%d+)([:+])(%d+)') do
    if tonumber(at) > TIME_MAX or tonumber(units) > most or (mark == ':' and not bucket) then
      return false
    end
    known = known + #at + #units + 2
  end
  return known == #entries
end

-- core::LevelAt
local function refill(limit, level, ticks)
  local refilled = ticks * limit.rate
  return refilled >= limit.whole - level and limit.whole or level + refilled
end

-- What a bucket would hold without a charge depends on whether it would have been full in between,
-- and lost what flowed in. So its journal has everything taken since the oldest hold, as '
-- moment:units' if none of it is on hold, and begins with the level before that. A refund computes
-- the levels again.
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
  -- Under another capacity it would have been full at other times, so what is on hold stays taken.
  carry = function(from, limit, level, time)
    return limit.whole - smaller(from.whole - level, EXACT_MAX), time
  end,
  give = function(limit, units, level, time)
    local missing = limit.whole - level
    if missing == 0 or units == 0 then return end
    -- The product is sure to fit only if it is less than what is missing.
    if units >= -floor(-missing / limit.unit) then return limit.whole, time end
    return level + units * limit.unit, time
  end,
  refund = function(limit, units, when, level, time, _, journal)
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
  sound = function(limit, level, time)
    return level <= limit.whole and level >= limit.level_min and time >= 0 and
           time <= limit.ticks_max and time
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
  give = function(limit, units, start, count)
    local given = smaller(units, count)
    if given > 0 then return start, count - given end
  end,
  refund = function(limit, units, when, start, count, _, journal)
    if floor(when / limit.tick) < start then return start, count, nil, journal end  -- Counts no more.
    local known, rest = unnote(journal, when, units)
    if known then return start, count - smaller(units, count), nil, rest end
  end,
  sound = function(limit, start, count)
    return start >= 0 and start <= limit.ticks_max and start % limit.unit == 0 and
           count >= 0 and count <= EXACT_MAX and start
  end,
}

-- core/window_counter.h

-- ceil(count * left / unit), where the product may not be exact: bit by bit, as in long division.
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
    return window, 0, smaller(used, limit.count_max)
  end,
  carry = function(from, limit, window, previous, current, journal)
    local most = limit.count_max
    if previous > most or current > most then journal = nil end  -- It may no longer add up.
    return window, smaller(previous, most), smaller(current, most), journal
  end,
  give = function(limit, units, window, previous, current)
    local of_current = smaller(units, current)
    local of_previous = smaller(units - of_current, previous)
    if of_current + of_previous > 0 then
      return window, previous - of_previous, current - of_current
    end
  end,
  refund = function(limit, units, when, window, previous, current, journal)
    local windows_ago = window - floor(floor(when / limit.tick) / limit.unit)
    if windows_ago > 1 then return window, previous, current, journal end  -- Counts no more.
    local known, rest = unnote(journal, when, units)
    if known and windows_ago == 0 then
      return window, previous, current - smaller(units, current), rest
    elseif known and windows_ago == 1 then
      return window, previous - smaller(units, previous), current, rest
    end
  end,
  sound = function(limit, window, previous, current)
    local most, start = limit.count_max, window * limit.unit
    return start >= 0 and start <= limit.ticks_max and previous >= 0 and previous <= most and
           current >= 0 and current <= most and start
  end,
}

-- core/calendar.h: a window that knows its bounds. The script only knows the two windows of the call;
-- of a moment after them, a window that does not end before the one that contains it.
kernel.k = {
  look = function(limit, start, length, count, journal)
    local first, middle, last = limit.first, limit.middle, limit.last
    if now >= middle then first, middle = middle, last end
    if start and (start > now or start + length > first) then
      return limit.amount - count, start, length, count, journal
    end
    if now >= last then return limit.amount, now, 1, 0, nil end
    return limit.amount, first, middle - first, 0, nil
  end,
  encode = function(limit, start, length, count, journal)
    local value = format('%s%d %d %d', limit.head, start, length, count)
    return journal and value .. journal or value, ttl(kernel.k.ends(limit, start, length))
  end,
  -- When nobody needs a window any more: those whose clocks are not the same may need it after it is
  -- over.
  ends = function(limit, start, length)
    local over, middle, last = start + length, limit.middle, limit.last
    if not last or over > last then
      over = over + limit.unit
    else
      over = over <= middle and middle or last
    end
    return over + 3600000000
  end,
  take = function(limit, units, hold, start, length, count, journal)
    return start, length, count + units, note(journal, hold, moment(limit, start), units)
  end,
  -- The windows of a limit of the past are not known.
  used = function(limit, start, length, count)
    return now < start + length and count or 0, start
  end,
  start = function(limit, used)
    local _, start, length = kernel.k.look(limit)
    return start, length, smaller(used, COUNT_MAX)
  end,
  carry = function(from, limit, start, length, count, journal) return start, length, count, journal end,
  give = function(limit, units, start, length, count)
    if units > 0 and count > 0 then return start, length, count - smaller(units, count) end
  end,
  refund = function(limit, units, when, start, length, count, journal)
    if when < start then return start, length, count, journal end  -- Counts no more.
    local known, rest = unnote(journal, when, units)
    if known then return start, length, count - smaller(units, count), rest end
  end,
  sound = function(limit, start, length, count)
    return start >= 0 and start <= limit.ticks_max and length >= 1 and length <= COUNT_MAX and
           count >= 0 and count <= COUNT_MAX and start
  end,
}

-- Whether the clock was set back since a state was written.
local function is_void(limit, newest)
  local window = limit.kind == 'b' and -floor(-limit.whole / limit.rate) or limit.unit
  return was_set_back(newest - limit.ticks, window, limit.tick)
end

-- The state in a string that was written under `limit` itself; nothing if it was not, or if it is
-- not sound.
local function decode(limit, value)
  local a, b, c, journal
  if limit.numbers == 3 then
    a, b, c, journal = match(value, limit.pattern)
    c = tonumber(c)
  else
    a, b, journal = match(value, limit.pattern)
  end
  if not a then return end
  a, b = tonumber(a), tonumber(b)
  local newest = kernel[limit.kind].sound(limit, a, b, c)
  if not newest or (newest > limit.ticks and is_void(limit, newest)) then return end
  if journal == '' then return a, b, c end
  if is_journal(limit, journal) then return a, b, c, journal end
end

-- Limits by their signatures. A library keeps them from call to call.
local known_limits, known_count = {}, 0
local KNOWN_MAX = 1024

local function limit_of(signature)
  local first, middle, last
  if find(signature, 'k', 1, true) == 1 then
    signature, first, middle, last = match(signature, '^(%S+) (%d+) (%d+) (%d+)$')
  end
  local limit = known_limits[signature]
  if not limit then
    limit = make_limit(signature, match(signature, '^%l:(%d+):(%d+):(%d+):(%d+)$'))
    if known_count == KNOWN_MAX then known_limits, known_count = {}, 0 end
    known_limits[signature], known_count = limit, known_count + 1
  end
  limit.ticks = floor(now / limit.tick)
  if first then limit.first, limit.middle, limit.last = tonumber(first), tonumber(middle), tonumber(last) end
  return limit
end

-- How far the call is: its reply, and the last key that was decided.
local reply, filled, key_at

-- The run that is being decided.
local action, groups, charges, times
local under, costs = {}, {}
-- The current group: where its reply begins, and the states of its charges.
local head, reading
local states = {}
-- Whether any of these has holds.
local any_held

-- What decides states with holds; see holds.lua.
local make_holding

-- The error of a replica. Redis only returns it while the call has written nothing.
local replica

-- Turns an error into the answer to a group.
local function failure(text)
  if find(text, 'READONLY', 1, true) == 1 then replica = text end
  return text
end

-- Everything that decides groups which are not plain; see answer_singles. It is made for the first
-- such group: most calls have none, and making it takes longer than deciding.
local function make_general()
  local holding

  -- SET with PX is a twentieth slower. A log that was there may be long, so it is freed in the
  -- background.
  local function write(key, limit, was_log, ...)
    local value, px = kernel[limit.kind].encode(limit, ...)
    if was_log then ask('UNLINK', key) end
    ask('PSETEX', key, px, value)
  end

  -- core/window_log.h: a sorted set by time. A member is 'total units window' or 'total units
  -- window since': what was recorded before it (modulo 2^53), its own units, the window it was
  -- written under, and the first moment that still counts, unless the entry's own time and window
  -- imply it. Anything older never counts again, whatever window is asked for later. So it may stay
  -- for a while: a charge removes at most EXPIRED_MAX of them.
  local MODULUS = EXACT_MAX + 1
  local EXPIRED_MAX = 32
  -- How many of the newest entries may be rewritten to refund what the oldest of them holds.
  local GIVE_MAX = 256

  local function add(total, units)
    return total >= MODULUS - units and total - (MODULUS - units) or total + units
  end

  local function minus(total, before)
    return total >= before and total - before or total + (MODULUS - before)
  end

  -- The numbers of an entry: total, units, time, window, since.
  local function entry(member, score)
    local total, units, window, since = match(member, '^(%d+) (%d+) (%d+) ?(%d*)$')
    total, units, window, since = tonumber(total), tonumber(units), tonumber(window), tonumber(since)
    local time = tonumber(score)
    if not total or total > EXACT_MAX or units < 1 or units > EXACT_MAX or
       window < 1 or window > SPAN_MAX or
       not time or time < 0 or time > TIME_MAX or time % 1 ~= 0 or (since and since > time) then
      error(FOREIGN, 0)
    end
    return total, units, time, window, since
  end

  local function member_of(total, units, window, since)
    local member = format('%d %d %d', total, units, window)
    return since and member .. format(' %d', since) or member
  end

  local function write_entry(key, total, units, time, window, since)
    ask('ZADD', key, time, member_of(total, units, window, since))
  end

  -- Entries have scores from 0 up to this. Above them there is only the head of a state with holds,
  -- and below them are its holds; see holds.lua.
  local ENTRIES_END = '(inf'

  -- A log without entries. `was_there`: the key holds something that must be removed.
  local function no_log(was_there)
    return {now = now, used = 0, newest = -1, oldest = 0, expired = 0, below = 0, drop = was_there}
  end

  -- The log of a key, under `window` or else its own.
  --   used newest oldest   as in the reply
  --   now                  the moment, not before the newest entry
  --   member total units window since   of the newest entry, if there is one
  --   base first           of the oldest entry that counts, if any: its total, and its own units
  --   expired              how many entries no longer count
  --   below                how many members lie below the entries
  --   keep                 in a state with holds: when these need the key no longer
  -- `last` is the newest entry, as ZRANGE returns it.
  local function read_entries(key, window, last, below)
    local member = last[1]
    if not member then return no_log(false) end
    local total, units, newest, own_window, since = entry(member, last[2])
    since = since or larger(0, newest - own_window + 1)
    window = window or own_window
    if was_set_back(newest - now, window, 1) then return no_log(true) end
    local moment = larger(newest, now)
    local expired = ask('ZCOUNT', key, '0', format('(%d', larger(moment - window + 1, since)))
    local live = ask('ZRANGE', key, below + expired, below + expired, 'WITHSCORES')
    local base, first, oldest, used = nil, nil, 0, 0
    if live[1] == member then
      base, first, oldest, used = total, units, newest, units
    elseif live[1] and live[2] ~= 'inf' then
      base, first, oldest = entry(live[1], live[2])
      used = minus(add(total, units), base)
      if used < first + units then error(FOREIGN, 0) end
    end
    return {now = moment, used = used, newest = newest, oldest = oldest, member = member, total = total,
            units = units, window = own_window, since = since, base = base, first = first,
            expired = expired, below = below, moved = false}
  end

  -- The log of a key that has no holds, or what is at the head of a state with holds; nil if the key
  -- has another type.
  local function read_log(key, window)
    local last = try('ZRANGE', key, -1, -1, 'WITHSCORES')
    if not last then return nil end
    if last[2] == 'inf' then return {head = last[1]} end
    return read_entries(key, window, last, 0)
  end

  -- Removes all entries.
  local function clear_log(key, log)
    if log.keep then ask('ZREMRANGEBYSCORE', key, '0', ENTRIES_END) else ask('UNLINK', key) end
  end

  -- When a key with a log may expire whose newest entry is from `at`.
  local function log_ttl(log, at, window) return ttl(larger(at + window, log.keep or 0)) end

  -- Writes a log from which `units` are taken now; 0 if only its limit is new.
  local function write_log(key, limit, log, units)
    local at, total, own, since = log.now, 0, units, nil
    if log.drop or (units > 0 and log.used == 0 and log.member) then
      clear_log(key, log)
      own = units + log.used
      if own == 0 then return end
    elseif log.member then
      if units > 0 and log.expired > 0 then
        ask('ZREMRANGEBYRANK', key, log.below, log.below + smaller(log.expired, EXPIRED_MAX) - 1)
      end
      if units == 0 or log.newest == at then
        ask('ZREM', key, log.member)
        at, total, own = log.newest, log.total, log.units + units
      else
        total = add(log.total, log.units)
      end
      local implied = larger(0, at - limit.unit + 1)
      since = units > 0 and larger(log.since, implied) or log.since
      if since == implied then since = nil end
    end
    write_entry(key, total, own, at, limit.unit, since)
    local reply = rpcall('PEXPIRE', key, log_ttl(log, at, limit.unit))
    if reply == 1 then return end
    -- Nothing may stay that does not expire.
    if not log.member and not log.keep then ask('UNLINK', key) end
    error(type(reply) == 'table' and reply.err or 'ERR an entry vanished', 0)
  end

  -- The entry that holds unit number `units` of those that count: its rank, not below `low`, its
  -- member, total and time. Nothing if there are fewer.
  local function locate(key, log, units, low)
    local high = ask('ZCARD', key) - (log.keep and 2 or 1)
    local rank, member, before, time
    while low <= high do
      local middle = floor((low + high) / 2)
      local found = ask('ZRANGE', key, middle, middle, 'WITHSCORES')
      local total, own, at = entry(found[1], found[2])
      if minus(add(total, own), log.base) >= units then
        high, rank, member, before, time = middle - 1, middle, found[1], total, at
      else
        low = middle + 1
      end
    end
    return rank, member, before, time
  end

  -- The time of the entry with which the `units` oldest units have left.
  local function leaves_at(key, log, units)
    if units > log.used or log.drop then return log.now end
    if units <= log.first then return log.oldest end
    local _, _, _, time = locate(key, log, units, log.below + log.expired + 1)
    return time or log.newest
  end

  -- core::Log::GiveBack: the newest go first. What has left the window is gone for good, as after a
  -- charge: `since` records that where entries are left. Updates `log` to the result.
  local function give_to_log(key, limit, log, units)
    local given = smaller(units, log.used)
    local kept = log.used - given
    if given == 0 then
      if log.moved then write_log(key, limit, log, 0) end
      return
    end
    log.used = kept
    if kept == 0 then
      clear_log(key, log)
      log.newest, log.oldest = -1, 0
      return
    end
    if log.drop then return write_log(key, limit, log, 0) end
    local rank, member, total, time = locate(key, log, kept, log.below + log.expired)
    if not rank then error(FOREIGN, 0) end
    local since = larger(log.since, larger(0, log.now - limit.unit + 1))
    if since == larger(0, time - limit.unit + 1) then since = nil end
    local left = member_of(total, kept - minus(total, log.base), limit.unit, since)
    -- Before anything is removed, so that the key stays, with its expiry.
    if left ~= member then
      ask('ZADD', key, time, left)
      ask('ZREM', key, member)
    end
    ask('ZREMRANGEBYRANK', key, rank + 1, log.keep and -2 or -1)
    ask('PEXPIRE', key, log_ttl(log, time, limit.unit))
    log.newest = time
  end

  -- core::Log::Untake, of several at once: `taken` has pairs of a moment and how many of the units
  -- recorded then were never taken, in the order of time, each moment once. What is no longer in the
  -- log is not taken, either. `after` has all entries from the first moment on.
  local function untake_from_log(key, taken, after)
    local entries = {}
    for i = 1, #after, 2 do entries[#entries + 1] = {entry(after[i], after[i + 1])} end
    -- Later entries include it in their totals, and their members contain the totals. All are
    -- removed before any is added back, since a new member may equal another's old one.
    ask('ZREMRANGEBYSCORE', key, format('%d', taken[1][1]), ENTRIES_END)
    local was_removed = ask('ZCARD', key) == 0
    local newest, under
    local next_taken, removed = 1, 0
    for _, known in ipairs(entries) do
      local total, own, time, window, since = unpack(known, 1, 5)
      total = minus(total, removed)
      while taken[next_taken] and taken[next_taken][1] < time do next_taken = next_taken + 1 end
      local untaken = taken[next_taken]
      if untaken and untaken[1] == time then
        local units = smaller(untaken[2], own)
        own, removed = own - units, removed + units
      end
      if own > 0 then
        newest, under = time, window
        write_entry(key, total, own, time, window, since)
      end
    end
    if newest and was_removed then ask('PEXPIRE', key, ttl(newest + under)) end
  end

  -- A refund. If too many entries came after it, it stays taken.
  local function give_log(key, units, at)
    local after = ask('ZRANGEBYSCORE', key, format('%d', at), ENTRIES_END, 'WITHSCORES',
                      'LIMIT', 0, GIVE_MAX + 1)
    if tonumber(after[2]) ~= at then return true end
    if #after > 2 * GIVE_MAX then return false end
    untake_from_log(key, {{at, units}}, after)
    return true
  end

  -- Whether the numbers that a state was written under can be those of a limit; see core/limit.cc.
  local function is_limit(limit)
    local unit, tick = limit.unit, limit.tick
    if limit.amount < 1 or limit.amount > EXACT_MAX or unit < 1 or
       (tick ~= 1 and tick ~= 1000 and tick ~= 1000000) then
      return false
    end
    if limit.kind == 'b' then
      return limit.rate >= 1 and limit.rate <= EXACT_MAX and limit.whole <= EXACT_MAX
    end
    return unit * tick <= SPAN_MAX and
           (limit.kind ~= 'c' or (limit.whole <= EXACT_MAX and limit.amount <= COUNT_MAX)) and
           (limit.kind ~= 'k' or (limit.amount <= COUNT_MAX and limit.rate <= EXACT_MAX))
  end

  -- The content of a string: the limit it was written under and the state.
  local function parse(value)
    local signature, amount, unit, rate, tick, a, b, c, journal =
      match(value, '^([bwck]:(%d+):(%d+):(%d+):(%d+)) (-?%d+) (%d+) ?(%d*)(;?[%d:+ -]*)$')
    if not signature then error(FOREIGN, 0) end
    local limit = make_limit(signature, amount, unit, rate, tick)
    a, b, c = tonumber(a), tonumber(b), tonumber(c)
    if journal == '' then journal = nil end
    if (limit.numbers == 3) ~= (c ~= nil) or not is_limit(limit) or
       not kernel[limit.kind].sound(limit, a, b, c) or
       (journal and not is_journal(limit, journal)) then
      error(FOREIGN, 0)
    end
    return limit, a, b, c, journal
  end

  -- Whether both limits count in the same units, so that a state carries over except for the
  -- amount.
  local function same_units(a, b)
    if a.kind ~= b.kind then return false end
    if a.kind == 'l' or a.kind == 'n' then return true end
    if a.kind == 'k' then return a.rate == b.rate end
    if a.kind == 'b' then return a.unit == b.unit and a.rate == b.rate and a.tick == b.tick end
    return a.unit * a.tick == b.unit * b.tick
  end

  -- Starts a state from which `used` were taken at a moment that is not before `newest`.
  local function start_at(newest, limit, used)
    if newest > now then now = newest end
    local a, b, c = kernel[limit.kind].start(limit, used)
    now = server_now
    return a, b, c
  end

  -- Reads the state of a key under `limit` into `state`: a, b, c and journal, all nil for an
  -- untouched budget; moved, if it must be written because its limit has changed; was_log; and held,
  -- if it has holds.
  local function read(key, limit, state)
    state.a, state.b, state.c, state.journal = nil, nil, nil, nil
    local value = try('GET', key)
    if value == false then return end
    local a, b, c, journal
    if value == nil then
      state.was_log = true
      local log = read_log(key) or error(FOREIGN, 0)
      if log.head then return holding().read(key, limit, state, log.head) end
      if not log.member then return end
      a, b, c = start_at(log.now, limit, log.used)
      state.moved = true
    else
      a, b, c, journal = decode(limit, value)
      if not a then
        if is_few(value) then return holding().read(key, limit, state, nil, value) end
        local from
        from, a, b, c, journal = parse(value)
        if same_units(from, limit) then
          a, b, c, journal = kernel[limit.kind].carry(from, limit, a, b, c, journal)
        else
          local used, newest = kernel[from.kind].used(from, a, b, c)
          a, b, c, journal = start_at(newest, limit, used)
        end
        state.moved = true
      end
    end
    local newest = kernel[limit.kind].sound(limit, a, b, c) or error(FOREIGN, 0)
    if newest > limit.ticks and is_void(limit, newest) then
      state.moved = nil
    else
      state.a, state.b, state.c, state.journal = a, b, c, journal
    end
  end

  -- The same for a log.
  local function read_under(key, limit, state)
    local log = read_log(key, limit.unit)
    if log and log.head then
      holding().read(key, limit, state, log.head)
      return state.log
    elseif not log then
      local value = ask('GET', key) or ''
      if is_few(value) then
        holding().read(key, limit, state, nil, value)
        return state.log
      end
      local from, a, b, c = parse(value)
      local used, newest = kernel[from.kind].used(from, a, b, c)
      log = no_log(true)
      if not was_set_back(newest - now, limit.unit, 1) then
        log.moved = true
        if used > 0 then
          local at = larger(newest, now)
          log.now, log.used, log.newest, log.oldest = at, used, at, at
        end
      end
    elseif log.member and log.window ~= limit.unit then
      log.moved = true  -- The newest entry records which window the log is under.
    end
    return log
  end

  -- Gives back under the state's current limit. If that counts in other units, what was taken stays
  -- taken. Returns whether nothing stays taken.
  local function give_back(key, limit, units, when)
    if limit.kind == 'l' then return give_log(key, units, when) end
    local value = try('GET', key)
    if value == false then return true end
    if value == nil or is_few(value) then return holding().refund(key, limit, units, when, value) end
    local under, a, b, c, journal = parse(value)
    if not same_units(under, limit) then return false end
    local own = kernel[limit.kind]
    a, b, c, journal = own.refund(under, units, when, a, b, c, journal)
    if not a or not own.sound(under, a, b, c) then return false end
    write(key, under, false, a, b, c, journal)
    return true
  end

  -- Actions that take nothing if not everything fits.
  local NEEDS_ROOM = {check = true, hold = true, look = true, reserve = true, foresee = true}

  -- Reads the states of all charges, and returns how many times the group is admitted.
  local function look_at_all()
    local admitted, filling = times, head
    for i = 1, charges do
      reading = i
      local key, limit, cost = KEYS[key_at + i], under[i], costs[i]
      local state = states[i] or {}
      states[i] = state
      -- Not nil: a key that is new to a table costs more than all the rest.
      state.held, state.moved, state.was_log = false, false, false
      local available
      if limit.kind == 'n' then
        holding().read_slots(key, limit, state)
        local held = state.held
        available = held and limit.amount - held.units or limit.amount
        reply[filling + 1] = held and held.units or 0
        reply[filling + 2] = held and held.ends or -1
      elseif limit.kind == 'l' then
        local log = read_under(key, limit, state)
        state.log, state.leaves = log, filling + 4
        available = limit.amount - log.used
        reply[filling + 1], reply[filling + 2] = log.used, log.newest
        reply[filling + 3], reply[filling + 4] = log.oldest, 0
      else
        read(key, limit, state)
        reply[filling + 1], reply[filling + 2] = state.a or 0, state.b or -1
        if limit.numbers == 3 then reply[filling + 3] = state.c or 0 end
        available, state.now_a, state.now_b, state.now_c, state.now_journal =
          kernel[limit.kind].look(limit, state.a, state.b, state.c, state.journal)
      end
      filling = filling + limit.numbers
      state.available = available > 0 and available or 0
      any_held = any_held or state.held
      if cost > 0 and NEEDS_ROOM[action] then
        local fits = floor(state.available / cost)
        if fits < admitted then admitted = fits end
      end
    end
    return admitted
  end

  -- Sets when enough has left the log of a charge that its cost fits, besides `units`.
  local function note_leaves(i, units)
    local limit, cost, state = under[i], costs[i], states[i]
    if limit.kind ~= 'l' or cost == 0 then return end
    local must_leave = state.log.used - limit.amount + units + cost
    if must_leave > 0 then
      reply[state.leaves] = leaves_at(KEYS[key_at + i], state.log, must_leave)
    end
  end

  -- Writes the state of a charge from which `units` are taken, or only what has moved.
  local function commit(i, units)
    reading = i
    local key, limit, state = KEYS[key_at + i], under[i], states[i]
    if state.held then
      holding().put(key, limit, state, units)
    elseif limit.kind == 'n' then
      if state.moved then ask('UNLINK', key) end
    elseif limit.kind == 'l' then
      if units > 0 or state.log.moved then write_log(key, limit, state.log, units) end
    elseif units > 0 then
      write(key, limit, state.was_log,
            kernel[limit.kind].take(limit, units, action == 'hold', state.now_a, state.now_b,
                                    state.now_c, state.now_journal))
    elseif state.moved then
      write(key, limit, state.was_log, state.a, state.b, state.c, state.journal)
    end
  end

  -- Decides the group whose keys follow key_at: first looks at all states, then takes from all of them
  -- or from none.
  local function decide()
    local admitted = look_at_all()
    local looks = action == 'look'
    for i = 1, charges do
      reading = i
      local limit, cost, state = under[i], costs[i], states[i]
      local units = looks and 0 or admitted * cost
      if action == 'debit' then units = smaller(units, state.available) end
      state.units = units
      if looks or admitted < times then note_leaves(i, units) end
    end
    for i = 1, charges do commit(i, states[i].units) end
    return admitted
  end

  -- Tells everyone who listens, if possible: what was given back stays given back.
  local function announce(at)
    if ARGV[at] ~= '' then rpcall('PUBLISH', ARGV[at], ARGV[at + 1]) end
  end

  -- Gives back to the group whose keys follow key_at, and replies with the states afterwards.
  local function give(first)
    local admitted, filling = look_at_all(), head
    for i = 1, charges do
      reading = i
      local key, limit, units, state = KEYS[key_at + i], under[i], costs[i], states[i]
      if limit.kind == 'n' then
        commit(i, 0)
      elseif limit.kind == 'l' then
        local log = state.log
        give_to_log(key, limit, log, units)
        log.moved = nil
        if state.held then commit(i, 0) end
        reply[filling + 1], reply[filling + 2], reply[filling + 3] = log.used, log.newest, log.oldest
      elseif state.held then
        local a, b, c = holding().give(key, limit, state, units)
        reply[filling + 1], reply[filling + 2] = a, b
        if limit.numbers == 3 then reply[filling + 3] = c end
      else
        local a, b, c = kernel[limit.kind].give(limit, units, state.now_a, state.now_b, state.now_c)
        if a then
          write(key, limit, state.was_log, a, b, c)
          reply[filling + 1], reply[filling + 2] = a, b
          if limit.numbers == 3 then reply[filling + 3] = c end
        elseif state.moved then
          write(key, limit, state.was_log, state.a, state.b, state.c, state.journal)
        end
      end
      announce(first + 4 * i - 2)
      filling = filling + limit.numbers
    end
    return admitted
  end

  local function answer_by(act, first)
    head, any_held = filled + 1, nil
    local width = 0
    for i = 1, charges do width = width + under[i].numbers end
    local decided, result = pcall(act, first)
    if decided and any_held and type(result) == 'number' then
      result = format('h %d', result)
      for i = 1, charges do
        result = result .. format(' %d', states[i].held and states[i].held.units or 0)
      end
    elseif not decided then
      for i = head + 1, head + width do reply[i] = 0 end
      result = result == FOREIGN and -reading or failure(tostring(result))
    end
    reply[head] = result
    filled = head + width
    key_at = key_at + charges
  end

  local function answer(first) answer_by(action == 'give' and give or decide, first) end

  local function answer_refund(first)
    local given = 1
    for i = 1, charges do
      local own = first + 5 * (i - 1)
      local when = tonumber(ARGV[own + 2])
      local done, gave = pcall(give_back, KEYS[key_at + i], under[i], costs[i], when)
      if done and gave then announce(own + 3) else given = 0 end
      if not done then failure(tostring(gave)) end
    end
    filled = filled + 1
    reply[filled] = given
    key_at = key_at + charges
  end

  -- Forgets whatever the keys of the group hold. Everyone who listens learns of it at the same
  -- moment; if that fails, nothing is forgotten. A long log is freed in the background.
  local function reset(first)
    for i = 1, charges do
      local channel, message = ARGV[first + 3 * i - 2], ARGV[first + 3 * i - 1]
      if channel ~= '' then ask('PUBLISH', channel, message) end
    end
    local existed = 0
    for i = 1, charges do existed = existed + ask('UNLINK', KEYS[key_at + i]) end
    return existed
  end

  local function answer_reset(first)
    local done, result = pcall(reset, first)
    filled = filled + 1
    reply[filled] = done and result or failure(tostring(result))
    key_at = key_at + charges
  end

  -- Made for the first state with holds, or the first action about one.
  local holding_made
  function holding()
    holding_made = holding_made or make_holding({
      write = write, read_entries = read_entries, no_log = no_log, write_log = write_log,
      untake_from_log = untake_from_log, parse = parse, is_limit = is_limit, same_units = same_units,
      start_at = start_at, look_at_all = look_at_all, note_leaves = note_leaves, commit = commit,
      announce = announce, ENTRIES_END = ENTRIES_END})
    return holding_made
  end

  local function answer_holding(first) answer_by(holding()[action], first) end

  return {answer = answer, refund = answer_refund, reset = answer_reset, reserve = answer_holding,
          foresee = answer_holding, settle = answer_holding, extend = answer_holding,
          list = answer_holding}
end

local general
local function answer_any(first)
  general = general or make_general()
  general.answer(first)
end

-- How often a request fits into what is available, of the times that it is asked.
local function fitting(available, cost)
  local fits = available > 0 and (cost == 1 and available or floor(available / cost)) or 0
  return fits < times and fits or times
end

-- The common case, unrolled: one limit that is not a log. No state occurs twice in such a run.
-- Whatever is not plain is decided like any other group.
local function answer_singles(limit, cost)
  local holds, own = action == 'hold', kernel[limit.kind]
  local look, take, encode = own.look, own.take, own.encode
  local has_third = limit.numbers == 3
  -- The result for every untouched budget.
  local _, start_a, start_b, start_c = look(limit)
  local start_admitted = fitting(limit.amount, cost)
  local start_value, start_px =
    encode(limit, take(limit, start_admitted * cost, holds, start_a, start_b, start_c))

  local values = rpcall('MGET', unpack(KEYS, key_at + 1, key_at + groups))
  for i = 1, groups do
    local key, known = KEYS[key_at + 1], values[i]
    local admitted, a, b, c
    if known then
      local journal
      a, b, c, journal = decode(limit, known)
      if a then
        local available, now_a, now_b, now_c, now_journal = look(limit, a, b, c, journal)
        admitted = fitting(available, cost)
        if admitted > 0 then
          local value, px =
            encode(limit, take(limit, admitted * cost, holds, now_a, now_b, now_c, now_journal))
          local written = rpcall('PSETEX', key, px, value)
          if written.err then admitted = failure(written.err) end
        end
      end
    else
      -- MGET returns nothing for a log, either; but NX keeps SET from overwriting one.
      local written = rpcall('SET', key, start_value, 'PX', start_px, 'NX')
      if written and written.ok then admitted, a, b, c = start_admitted, 0, -1, 0 end
    end
    if admitted then
      reply[filled + 1], reply[filled + 2], reply[filled + 3] = admitted, a, b
      filled = filled + 3
      if has_third then
        filled = filled + 1
        reply[filled] = c
      end
      key_at = key_at + 1
    else
      answer_any()
    end
  end
end

-- How many arguments there are for each charge, if not two. The actions of holds.lua have the id of
-- the hold after them.
local WIDTH_OF = {give = 4, refund = 5, reset = 3, reserve = 4, foresee = 4, settle = 4,
                  extend = 2, list = 2}
local HAS_ID = {reserve = 1, foresee = 1, settle = 1, extend = 1, list = 1}

-- Decides a run of groups.
local function answer_run(first)
  if WIDTH_OF[action] and action ~= 'give' then
    general = general or make_general()
    for _ = 1, groups do general[action](first) end
  elseif (action == 'check' or action == 'hold') and charges == 1 and under[1].kind ~= 'l' and
         costs[1] > 0 then
    answer_singles(under[1], costs[1])
  else
    for _ = 1, groups do answer_any(first) end
  end
end

-- What was decided about one state, as a line.
local function line_of_reply()
  local result, numbers = reply[1], under[1].numbers
  if type(result) == 'string' and find(result, '^h ') then
    local form = numbers == 3 and '%s;%d %d %d' or '%s;%d %d'
    return format(form, result, unpack(reply, 2, 1 + numbers))
  elseif type(result) == 'string' then
    return '!' .. gsub(result, '%c', ' ')
  elseif result < 0 or reply[3] == -1 then
    return format('%d ', result)
  end
  return format(numbers == 3 and '%d %d %d %d' or '%d %d %d', unpack(reply, 1, 1 + numbers))
end

local function begin_rest(keys)
  KEYS, ARGV = keys, nil
  injected, slack_ms, replica = false, 1, nil
  groups, charges, times = 1, 1, 1
end

-- Decides what decide_slots has left, and completes its reply.
local function decide_rest_of_slots(keys)
  local parts, left = rest_of_slots.parts, rest_of_slots.left
  now, server_now = rest_of_slots.now, rest_of_slots.now
  begin_rest(keys)
  for i = 1, #left, 3 do
    local shape = left[i + 1]
    action = shape.takes and 'reserve' or 'settle'
    under[1], costs[1] = limit_of(shape.signature), shape.units
    ARGV = {1, costs[1], shape.ttl or '', shape.takes and 'r' or '', sub(left[i + 2], 2, -2)}
    reply, filled, key_at = {}, 0, left[i] - 1
    answer_run(1)
    parts[left[i] + 1] = '\n' .. line_of_reply()
  end
  if replica then return {err = replica} end
  return concat(parts)
end

-- Decides what decide_singles has left, and completes its reply.
local function decide_rest(keys)
  local parts, left = rest.parts, rest.left
  now, server_now, action = rest.now, rest.now, 'check'
  begin_rest(keys)
  for i = 1, #left, 3 do
    local check = left[i + 1]
    times, under[1], costs[1] = left[i + 2], limit_of(check.signature), check.cost
    reply, filled, key_at = {}, 0, left[i] - 1
    answer_any()
    parts[left[i] + 1] = '\n' .. line_of_reply()
  end
  if replica then return {err = replica} end
  return concat(parts)
end

local function decide_all(keys, args)
  if rest then return decide_rest(keys) end
  if rest_of_slots then return decide_rest_of_slots(keys) end
  KEYS, ARGV = keys, args
  local packed, cost = nil, nil
  if not args[2] then packed, cost = match(args[1], '^(%S+) (%d+)$') end
  -- An injected clock is independent of the server's: state must outlive the steps of a test.
  injected = not packed and args[1] ~= ''
  if injected then
    now = tonumber(args[1])
  else
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  if now > TIME_MAX then return TOO_LATE end
  server_now, slack_ms = now, injected and 86400000 or 1
  reply, filled, key_at, replica = {now}, 1, 0, nil

  if packed then
    action, groups, charges, times = 'check', 1, 1, 1
    under[1], costs[1] = limit_of(packed), tonumber(cost)
    answer_run()
  else
    local limits = {}
    for i = 1, tonumber(args[2]) do
      local limit = limit_of(args[2 + i])
      if limit.kind == 'k' and (now < limit.first or now >= limit.last) then
        return {err = format('CALENDAR %d', now)}
      end
      limits[i] = limit
    end
    local at = 3 + #limits
    while args[at] do
      action, groups, charges, times =
        args[at], tonumber(args[at + 1]), tonumber(args[at + 2]), tonumber(args[at + 3])
      local first, width = at + 4, WIDTH_OF[action] or 2
      for i = 1, charges do
        under[i] = limits[tonumber(args[first + width * (i - 1)])]
        costs[i] = tonumber(args[first + width * (i - 1) + 1])
      end
      at = first + width * charges + (HAS_ID[action] or 0)
      answer_run(first)
    end
  end
  if replica then return {err = replica} end
  return reply
end
