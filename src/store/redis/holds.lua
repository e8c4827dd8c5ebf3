-- SPDX-License-Identifier: Apache-2.0
-- The last part of the Redis store's program, after sluice.lua: states with holds, and the actions
-- that make and end them. It mirrors src/store/memory/held_state.cc and holding.cc.
--
-- ARGV   Runs of these actions have the id of the hold after their charges, and are not repeated:
--          reserve (limit cost ttl on_expiry){charges} id
--                    take all costs, or nothing if any does not fit, and hold them under the id for
--                    `ttl` microseconds; on_expiry is 'c' to leave them taken then, or 'r' to
--                    release them
--          foresee   the same, but take nothing
--          settle (limit cost channel message){charges} id
--                    end the hold: the charges have cost that much. Publishes the messages if
--                    anything was given back, unless the channel is ''
--          extend (limit ttl){charges} id
--                    the hold lasts for another `ttl`
--          list (limit 0) id
--                    look at one state, and list its live holds: that of the id, or all if it is ''
-- Reply  Of list as of look, but for the text, if there are holds: 'h admitted held' and further lines,
--        the first with how many are live. Each of the others is 'expires taken units on_expiry id',
--        in the order of expiry and id, of at most LISTED_MAX. Of the others
--        'h outcome part expires late overdrawn (held fits){charges}', and the states as for other
--        actions: before what was admitted (concurrency: after it), or else as they are now.
--          outcome   0 denied      1 done; of foresee: fits     2 exists and is live
--                    3 conflict    4 too many holds on state number `part`     5 lost
--          expires   when the hold expires: the earliest of all states
--          late, overdrawn   of settle, 0 or 1; see HoldTerms
--          held      units on hold, of each state
--          fits      of a concurrency limit that denies: when the cost would fit; else 0
--
-- The state of a concurrency limit that remembers few holds is a string:
--   FEW_HEAD: 'h'; how many holds it remembers, up to FEW_MAX; which of them are live, as bits; units
--           on hold; when the last id expires; until when expiries have been applied; when the next
--           live hold expires, and the last, 0 if none is live; and when the key expires
--   '\3'
--   of each hold '<128 + its number>\2<id>\3expires taken units flag', where the flag is
--           c r   live if its bit says so, or else settled    C R   expired, and what that did
--           l     settled late
-- So a slot is taken or released by one read and one write or two; see slots.lua. With more holds than
-- FEW_MAX the state is a sorted set, and when it has forgotten all but FEW_AGAIN, a string again. States
-- of all other limits with holds are sorted sets.
--   'h units live last at era redated forced state', at +inf
--           the head: units on hold, and how many holds are live; when the last id expires; until
--           when expiries have been applied; three fields about changed limits; and the state as it
--           would be stored without holds, of a log and of concurrency only the signature
--   entries of a log, by time, as in a log without holds
--   'i<id>' and 'i<id>\1units taken era on_expiry', both at its expiry - LIVE
--           a hold that was not settled: live if its expiry is after `at`, else expired
--   'i<id>' and 'i<id>\1s', or \1l if it was late, both at the hold's expiry - ENDED
--           a hold that was settled
-- There a hold is found by its id, and live holds are ordered by their expiry, both in O(log n); and
-- letting a hold expire writes nothing but the head. What a log holds is the exception: its entries
-- shrink at once, whoever notices it, which rewrites all newer ones.
--
-- When a limit is replaced by one that counts in other units, all units on hold count as taken at
-- that moment, and under a concurrency limit are released at their expiry; see Holds::Redate.
-- Instead of rewriting all holds, the head of a sorted set counts such moments: holds of an earlier
-- era were taken at `redated`; and those of an era before one in `forced`, which is '-' or
-- 'era@moment,…', are released if they were live at its moment.

make_holding = function(tools)
  local write, parse, is_limit, same_units = tools.write, tools.parse, tools.is_limit, tools.same_units
  local start_at, read_entries, no_log = tools.start_at, tools.read_entries, tools.no_log
  local write_log, untake_from_log, commit = tools.write_log, tools.untake_from_log, tools.commit
  local look_at_all, note_leaves, announce = tools.look_at_all, tools.note_leaves, tools.announce
  local ENTRIES_END = tools.ENTRIES_END

  local LIVE, ENDED = 4503599627370496, 9007199254740992
  local REMEMBERED = 60000000  -- kHoldRemembered
  local TTL_MAX = 86400000000  -- kHoldTtlMax
  local HOLDS_MAX = 4096       -- kLiveHoldsMax
  -- How many moments `forced` may have. A limit that becomes one of concurrency more often while the
  -- same ids are remembered loses the first of them.
  local FORCED_MAX = 8
  -- Expired holds that a look leaves to the next write.
  local DUE_MAX = 32
  -- How many ids one write forgets, of those that expired and of those that were settled; and how
  -- many at once when no others are left.
  local FORGOTTEN_MAX, LAST_FORGOTTEN_MAX = 64, 512
  local LISTED_MAX = 100  -- kListedHoldsMax
  -- All of a string is read by everybody, some 70 bytes for each hold. More holds than these are
  -- sooner found in a sorted set. There are as many bits in the head.
  local FEW_MAX, FEW_AGAIN = FEW_HOLDS_MAX, 16
  -- A state under a concurrency limit is the same under all of them.
  local ANY_SLOTS = {kind = 'n', signature = '', tick = 1}

  -- Buckets: core/bucket.h

  -- The level at a moment in ticks with `held` units on hold, and that moment.
  local function capped(limit, held, level, time, ticks)
    if ticks < time then ticks = time end
    local cap = larger(level, limit.whole - smaller(held, limit.amount) * limit.unit)
    return smaller(cap, refill(limit, level, ticks - time)), ticks
  end

  -- The state as if `units` had not been taken; `held` are on hold then. Of a bucket, the state is
  -- that of now.
  local untake = {
    b = function(limit, units, _, held, level, time)
      local room = limit.whole - smaller(held, limit.amount) * limit.unit - level
      if room <= 0 then return level, time end
      -- The product is sure to fit only if it is less than the room.
      if units >= -floor(-room / limit.unit) then return level + room, time end
      return level + units * limit.unit, time
    end,
    w = function(limit, units, taken, _, start, count)
      local ticks = floor(taken / limit.tick)
      if ticks - ticks % limit.unit == start then count = count - smaller(units, count) end
      return start, count
    end,
    c = function(limit, units, taken, _, window, previous, current)
      local taken_in = floor(floor(taken / limit.tick) / limit.unit)
      if taken_in == window then
        current = current - smaller(units, current)
      elseif taken_in == window - 1 then
        previous = previous - smaller(units, previous)
      end
      return window, previous, current
    end,
    k = function(limit, units, taken, _, start, length, count)
      if taken >= start then count = count - smaller(units, count) end
      return start, length, count
    end,
  }

  -- The state of now after `units` more are taken, even if they are not there.
  local overdraw = {
    b = function(limit, units, level, time)
      local bearable = units <= floor((level - limit.level_min) / limit.unit)
      return bearable and level - units * limit.unit or limit.level_min, time
    end,
    w = function(limit, units, start, count)
      return start, count + smaller(units, EXACT_MAX - count)
    end,
    c = function(limit, units, window, previous, current)
      return window, previous, current + smaller(units, limit.count_max - current)
    end,
    k = function(limit, units, start, length, count)
      return start, length, count + smaller(units, COUNT_MAX - count)
    end,
  }

  -- Reading

  local function checked(number, most)
    number = tonumber(number)
    if not number or number < 0 or number > most then error(FOREIGN, 0) end
    return number
  end

  -- What the head says, without the state, and the state's text.
  local function read_head(member)
    local units, live, last, at, era, redated, forced, value =
      match(member, '^h (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.+)$')
    if not value then error(FOREIGN, 0) end
    local moments = {}
    for forced_era, forced_at in gmatch(forced, '(%d+)@(%d+)') do
      moments[#moments + 1] = {checked(forced_era, EXACT_MAX), checked(forced_at, TIME_MAX)}
    end
    if #moments > FORCED_MAX then error(FOREIGN, 0) end
    return {member = member, units = checked(units, EXACT_MAX), live = checked(live, HOLDS_MAX),
            last = checked(last, TIME_MAX), at = checked(at, TIME_MAX),
            era = checked(era, EXACT_MAX - 1), redated = checked(redated, TIME_MAX),
            forced = moments, ends = 0}, value
  end

  -- The limit that a state was written under, and the state.
  local function read_value(limit, value)
    if limit.kind ~= 'l' and limit.kind ~= 'n' then
      local a, b, c, journal = decode(limit, value)
      if a then return limit, a, b, c, journal end
    end
    local signature, amount, unit, rate, tick = match(value, '^([ln]:(%d+):(%d+):(%d+):(%d+))$')
    if not signature then return parse(value) end
    local from = make_limit(signature, amount, unit, rate, tick)
    if not is_limit(from) then error(FOREIGN, 0) end
    return from
  end

  local function by_expiry(x, y)
    if x.expires ~= y.expires then return x.expires < y.expires end
    return x.id < y.id
  end

  -- The same of a string, and its holds.
  local function read_few(text)
    if #text < FEW_HEAD_SIZE then error(FOREIGN, 0) end
    local _, count, live, units, last, at, due, latest = unpack_few(FEW_HEAD, text)
    local records = match(text:sub(FEW_HEAD_SIZE + 1), '^\3(.*)$')
    if not records or count > FEW_MAX or units > EXACT_MAX then error(FOREIGN, 0) end
    local held = {units = units, live = 0, last = checked(last, TIME_MAX), at = checked(at, TIME_MAX),
                  era = 0, redated = 0, forced = {}, ends = 0, few = {}}
    local known, left = 0, units
    for number, id, expires, taken, own, flag in
        gmatch(records, '([\128-\255])\2([ -~]+)\3(%d+) (%d+) (%d+) ([crCRl])') do
      local hold = {id = id, expires = checked(expires, TIME_MAX), taken = checked(taken, TIME_MAX),
                    units = checked(own, EXACT_MAX), flag = flag}
      if number:byte() ~= 128 + #held.few or #id > 64 then error(FOREIGN, 0) end
      held.few[#held.few + 1] = hold
      hold.live = live % 2 == 1
      if hold.live then
        left, held.live = left - hold.units, held.live + 1
        if (flag ~= 'c' and flag ~= 'r') or hold.expires <= held.at or hold.expires < due or
           hold.expires > latest then
          error(FOREIGN, 0)
        end
      end
      live, known = floor(live / 2), known + 7 + #id + #expires + #taken + #own
    end
    if #held.few ~= count or known ~= #records or left ~= 0 or live ~= 0 then error(FOREIGN, 0) end
    return held
  end

  -- As read_hold.
  local function hold_of(few)
    return {status = few.live and 'live' or few.flag == 'l' and 'late' or
                     (few.flag == 'C' or few.flag == 'R') and 'expired' or 'settled',
            expires = few.expires, units = few.units, taken = few.taken,
            releases = few.flag == 'r' or few.flag == 'R', few = few}
  end

  local function live_few(held)
    local live = {}
    for _, hold in ipairs(held.few) do
      if hold.live then live[#live + 1] = hold end
    end
    table.sort(live, by_expiry)
    return live
  end

  local function is_forced(held, era, expires)
    for _, forced in ipairs(held.forced) do
      if era < forced[1] and forced[2] < expires then return true end
    end
    return false
  end

  -- The hold in two adjacent members with their scores.
  local function read_hold(held, name, score, data, same_score)
    if not same_score or score ~= same_score or data:sub(1, #name + 1) ~= name .. '\1' then
      error(FOREIGN, 0)
    end
    score, data = tonumber(score), data:sub(#name + 2)
    if score % 1 ~= 0 or score < -ENDED or score >= 0 then error(FOREIGN, 0) end
    if score < -LIVE then
      if data ~= 's' and data ~= 'l' then error(FOREIGN, 0) end
      return {status = data == 's' and 'settled' or 'late', expires = score + ENDED, data = data}
    end
    local units, taken, era, on_expiry = match(data, '^(%d+) (%d+) (%d+) ([cr])$')
    era = checked(era, held.era)
    local expires = score + LIVE
    return {status = expires > held.at and 'live' or 'expired', expires = expires, data = data,
            units = checked(units, EXACT_MAX),
            taken = era < held.era and held.redated or checked(taken, TIME_MAX),
            releases = on_expiry == 'r' or is_forced(held, era, expires)}
  end

  -- The hold of this id; nothing if it is not remembered. Then perhaps what is still stored of it.
  local function find(key, held, id)
    if held.few then
      for _, hold in ipairs(held.few) do
        if hold.id == id and hold.expires + REMEMBERED > held.moment then return hold_of(hold) end
      end
      return
    end
    local name = 'i' .. id
    local rank = ask('ZRANK', key, name)
    if not rank then return end
    local pair = ask('ZRANGE', key, rank, rank + 1, 'WITHSCORES')
    local hold = read_hold(held, pair[1], pair[2], pair[3] or '', pair[4])
    if hold.status == 'live' and (hold.units > held.units or held.live == 0) then
      error(FOREIGN, 0)
    end
    if hold.expires + REMEMBERED > held.moment then return hold end
    return nil, name .. '\1' .. hold.data
  end

  -- The last expiry of those that were not settled, or of those that were; 0 if there are none.
  local function last_expiry(key, below, offset)
    local last = ask('ZREVRANGEBYSCORE', key, format('(%d', below), format('%d', -offset),
                     'WITHSCORES', 'LIMIT', 0, 1)
    return last[2] and tonumber(last[2]) + offset or 0
  end

  local function last_of_all(key, held)
    if not held.few then return larger(last_expiry(key, 0, LIVE), last_expiry(key, -LIVE, ENDED)) end
    local last = 0
    for _, hold in ipairs(held.few) do last = larger(last, hold.expires) end
    return last
  end

  local function last_live(key, held)
    if held.few then
      local last = 0
      for _, hold in ipairs(held.few) do
        if hold.live then last = larger(last, hold.expires) end
      end
      return last
    end
    local last = held.live > 0 and last_expiry(key, 0, LIVE) or 0
    return last > held.at and last or 0
  end

  -- The log of a key, with holds or without.
  local function entries_of(key, window)
    local last, below = ask('ZRANGE', key, -1, -1, 'WITHSCORES'), 0
    if last[2] == 'inf' then
      below = ask('ZCOUNT', key, '-inf', '(0')
      last = ask('ZRANGE', key, -2, -2, 'WITHSCORES')
      if last[1] and tonumber(last[2]) < 0 then last = {} end
    end
    return read_entries(key, window, last, below)
  end

  -- Removes from a log what holds have released, by pairs of when it was taken and how much.
  local function shrink_log(key, releases)
    table.sort(releases, function(x, y) return x[1] < y[1] end)
    local taken = {}
    for _, release in ipairs(releases) do
      local last = taken[#taken]
      if last and last[1] == release[1] then
        last[2] = smaller(EXACT_MAX, last[2] + release[2])
      else
        taken[#taken + 1] = release
      end
    end
    local after = ask('ZRANGEBYSCORE', key, format('%d', taken[1][1]), ENTRIES_END, 'WITHSCORES')
    if after[1] then untake_from_log(key, taken, after) end
  end

  local function head_of(held, value)
    local forced = {}
    for i, at in ipairs(held.forced) do forced[i] = format('%d@%d', at[1], at[2]) end
    return format('h %d %d %d %d %d %d ', held.units, held.live, held.last, held.at, held.era,
                  held.redated) .. (forced[1] and concat(forced, ',') or '-') .. ' ' .. value
  end

  -- Goes through the live holds that have expired by held.moment, in that order.
  local function due_holds(key, held)
    local next_due = 1
    if held.few then
      local live = live_few(held)
      return function()
        local few = live[next_due]
        if not few or few.expires > held.moment then return end
        next_due, few.live, few.flag = next_due + 1, false, few.flag:upper()
        return hold_of(few)
      end
    end
    local due = ask('ZRANGEBYSCORE', key, format('(%d', held.at - LIVE),
                    format('%d', held.moment - LIVE), 'WITHSCORES')
    return function()
      local i = next_due
      if not due[i] then return end
      next_due = i + 4
      return read_hold(held, due[i], due[i + 1], due[i + 2] or '', due[i + 3])
    end
  end

  -- Lets every hold that has expired by held.moment expire at its own moment. Returns the state
  -- afterwards, and what was released of a log.
  local function expire(key, limit, held, a, b, c)
    local releases = {}
    if held.moment <= held.at then return a, b, c, releases end
    local count = 0
    for hold in due_holds(key, held) do
      count = count + 1
      if limit.kind == 'b' then
        a, b = capped(limit, held.units, a, b, floor(hold.expires / limit.tick))
      end
      held.units, held.live = held.units - hold.units, held.live - 1
      if held.units < 0 or held.live < 0 then error(FOREIGN, 0) end
      if hold.releases and hold.units > 0 then
        if limit.kind == 'l' then
          releases[#releases + 1] = {hold.taken, hold.units}
        elseif limit.kind ~= 'n' then
          a, b, c = untake[limit.kind](limit, hold.units, hold.taken, held.units, a, b, c)
        end
      end
    end
    held.at, held.due = held.moment, count
    return a, b, c, releases
  end

  -- Shard::Convert. Returns the state under `limit`; for a log, sets that.
  local function convert(from, limit, held, state, a, b, c, journal)
    state.moved = true
    if from.kind == 'b' then
      a, b = capped(from, held.units, a, b, ticks_at(from, b))
      journal = nil
    end
    if same_units(from, limit) then
      if limit.kind == 'n' then return end
      if limit.kind ~= 'l' then return kernel[limit.kind].carry(from, limit, a, b, c, journal) end
      state.log.moved = state.log.member ~= nil and state.log.window ~= limit.unit
      return
    end
    local used, newest = held.units, now
    if from.kind == 'l' then
      used, newest, held.clears = state.log.used, state.log.now, true
    elseif from.kind ~= 'n' then
      used, newest = kernel[from.kind].used(from, a, b, c)
    end
    local at = larger(newest, now)
    if held.few then
      for _, hold in ipairs(held.few) do
        hold.taken = at
        if hold.live and limit.kind == 'n' then hold.flag = 'r' end
      end
    else
      held.era, held.redated = held.era + 1, at
    end
    if limit.kind == 'n' then
      if held.few then return end
      if #held.forced == FORCED_MAX then table.remove(held.forced, 1) end
      held.forced[#held.forced + 1] = {held.era, at}
    elseif limit.kind ~= 'l' then
      return start_at(newest, limit, used)
    else
      local log = no_log(true)
      log.moved = true
      -- A string is replaced by the log, and its holds are added to that afterwards.
      if not held.few then log.keep = held.last + REMEMBERED end
      if used > 0 then log.now, log.used, log.newest, log.oldest = at, used, at, at end
      state.log = log
    end
  end

  -- Reads a state with holds, a string or a sorted set with this head, into `state`: as read does
  -- without holds, and
  --   held      the numbers of the head, after all that has expired by now; moment: now, not before
  --             the state's newest time; ends: of concurrency, when the last live hold expires
  --   log       of a log
  --   moved     the state must be written, even if nothing is taken
  -- A bucket's level is that of now: a bucket is full when it holds all that is not on hold.
  local function read(key, limit, state, member, text)
    local held, value
    local from, a, b, c, journal = nil, nil, nil, nil, nil
    if text then
      held, from = read_few(text), limit.kind == 'n' and limit or ANY_SLOTS
    else
      held, value = read_head(member)
      from, a, b, c, journal = read_value(limit, value)
    end
    state.a, state.b, state.c, state.journal, state.moved, state.was_log = nil, nil, nil, nil, nil, nil
    local newest, is_foretold = 0, held.last - now > TTL_MAX + 1000000 and not injected
    if from.kind == 'l' then
      state.log = entries_of(key, limit.kind == 'l' and limit.unit or from.unit)
      newest, is_foretold = state.log.newest, is_foretold or state.log.drop
    elseif a then
      newest = kernel[from.kind].sound(from, a, b, c) or error(FOREIGN, 0)
      is_foretold = is_foretold or (newest > from.ticks and is_void(from, newest))
    end
    if is_foretold then
      -- The clock was set back: nothing counts any more, nor do the holds.
      state.log, state.was_log = no_log(true), limit.kind ~= 'l'
      return
    end
    held.moment = moment(from, newest)
    state.held = held
    local releases
    a, b, c, releases = expire(key, from, held, a, b, c)
    if from.kind == 'l' then
      if releases[1] then
        shrink_log(key, releases)
        local head = head_of(held, value)
        ask('ZADD', key, 'inf', head)
        ask('ZREM', key, held.member)
        held.member = head
        state.log = entries_of(key, limit.kind == 'l' and limit.unit or from.unit)
      end
      state.log.keep = held.last + REMEMBERED
    end
    if from.signature ~= limit.signature then
      a, b, c, journal = convert(from, limit, held, state, a, b, c, journal)
    elseif limit.kind == 'l' and state.log.member and state.log.window ~= limit.unit then
      state.log.moved, state.moved = true, true
    end
    if a then
      if limit.kind == 'b' then
        a, b = capped(limit, held.units, a, b, ticks_at(limit, b))
        journal = nil
      end
      if not kernel[limit.kind].sound(limit, a, b, c) then error(FOREIGN, 0) end
      state.a, state.b, state.c, state.journal = a, b, c, journal
    elseif limit.kind == 'n' then
      held.ends = last_live(key, held)
    end
    state.moved = state.moved or (held.due or 0) > DUE_MAX or held.last + REMEMBERED <= held.moment
  end

  -- Reads the state of a concurrency limit. It has none but its holds.
  local function read_slots(key, limit, state)
    local text = try('GET', key)
    if text == false then return end
    if text and is_few(text) then return read(key, limit, state, nil, text) end
    local last = not text and ask('ZRANGE', key, -1, -1, 'WITHSCORES')
    if last and last[2] == 'inf' then return read(key, limit, state, last[1]) end
    -- Another limit's state.
    if last then read_entries(key, nil, last, 0) else parse(text) end
    state.moved, state.was_log = true, last ~= false
  end

  -- Writing

  -- The moment of a decision, not before the newest time of the state of now.
  local function moment_of(limit, state)
    if limit.kind == 'n' then return now end
    if limit.kind == 'l' then return state.log.now end
    local newest = limit.kind == 'b' and state.now_b or state.now_a
    return moment(limit, limit.kind == 'c' and newest * limit.unit or newest)
  end

  -- Forgets some of the ids in a sorted set whose time is over. Returns whether there were any.
  local function forget(key, held)
    local until_ = held.moment - REMEMBERED
    if until_ < 0 then return false end
    local settled = ask('ZCOUNT', key, '-inf', format('%d', until_ - ENDED))
    if settled > 1 then
      ask('ZREMRANGEBYRANK', key, 0, 2 * smaller(floor(settled / 2), FORGOTTEN_MAX) - 1)
    end
    local expired = ask('ZCOUNT', key, format('%d', -LIVE), format('%d', until_ - LIVE))
    if expired > 1 then
      local first = ask('ZCOUNT', key, '-inf', format('(%d', -LIVE))
      ask('ZREMRANGEBYRANK', key, first,
          first + 2 * smaller(floor(expired / 2), FORGOTTEN_MAX) - 1)
    end
    return settled > 1 or expired > 1
  end

  -- When the key may expire: no earlier than when the state would be untouched and no id remembered.
  local function needed_until(limit, state, a, b)
    local held, ends = state.held, 0
    if limit.kind == 'b' then
      -- Perhaps it does not fill while units are on hold.
      local from = held.live > 0 and larger(b, floor(held.last / limit.tick) + 1) or b
      ends = (from - floor(-(limit.whole - a) / limit.rate)) * limit.tick
    elseif limit.kind == 'w' then
      ends = (a + limit.unit) * limit.tick
    elseif limit.kind == 'c' then
      ends = (a + 2) * limit.unit * limit.tick
    elseif limit.kind == 'k' then
      ends = kernel.k.ends(limit, a, b)
    elseif limit.kind == 'l' then
      ends = state.log.newest + limit.unit
    end
    return larger(ends, held.last + REMEMBERED)
  end

  -- Writes a state without its holds, of which none is remembered. Returns false if there are too
  -- many to remove them at once: then the state stays as it is, with fewer of them.
  local function write_plain(key, limit, state, ...)
    if limit.kind == 'n' then
      ask('UNLINK', key)
    elseif limit.kind == 'l' and state.held.few then
      return true  -- The log was written already.
    elseif limit.kind == 'l' then
      local below = ask('ZCOUNT', key, '-inf', '(0')
      if below > 0 then
        ask('ZREMRANGEBYRANK', key, 0, smaller(below, 2 * LAST_FORGOTTEN_MAX) - 1)
      end
      if below > 2 * LAST_FORGOTTEN_MAX then return false end
      ask('ZREM', key, state.held.member)
      ask('PEXPIRE', key, ttl(state.log.newest + limit.unit))
    else
      write(key, limit, true, ...)
    end
    return true
  end

  -- The members of a hold, with their scores.
  local function pair_of(id, at, data)
    local name, score = 'i' .. id, format('%d', at)
    return score, name, score, name .. '\1' .. data
  end

  -- What a sorted set stores of a hold, and its score.
  local function data_of(hold, era)
    if not hold.live and (hold.flag == 'c' or hold.flag == 'r') then return hold.expires - ENDED, 's' end
    if hold.flag == 'l' then return hold.expires - ENDED, 'l' end
    return hold.expires - LIVE,
           format('%d %d %d %s', hold.units, hold.taken, era, hold.flag:lower())
  end

  local function write_few(key, state, needed)
    local held, live, due, latest = state.held, 0, 0, 0
    local parts = {'', '\3'}
    for i, hold in ipairs(held.few) do
      if hold.live then
        live = live + 2 ^ (i - 1)
        due = due == 0 and hold.expires or smaller(due, hold.expires)
        latest = larger(latest, hold.expires)
      end
      parts[i + 2] = char(127 + i) .. '\2' .. hold.id .. '\3' ..
                     few_data(hold.expires, hold.taken, hold.units, hold.flag)
    end
    local lives_until = few_lives_until(needed, server_now)
    parts[1] = pack_few(FEW_HEAD, 104, #held.few, live, held.units, held.last, held.at, due, latest,
                        lives_until)
    if held.is_new and state.was_log then ask('UNLINK', key) end
    ask('PSETEX', key, ttl(lives_until), concat(parts))
    held.is_new = nil
  end

  -- Puts a hold in the place of the one with its id, if there is one, and drops those that are
  -- forgotten.
  local function change_few(held, change)
    local kept = {}
    for _, hold in ipairs(held.few) do
      if hold.expires + REMEMBERED > held.moment and not (change and hold.id == change.id) then
        kept[#kept + 1] = hold
      end
    end
    if change then kept[#kept + 1] = change end
    held.few = kept
  end

  -- Turns a sorted set with few holds into a string. Nobody misses `forced` and eras there.
  local function shrink_to_few(key, state, needed)
    local held = state.held
    if ask('ZCARD', key) > 2 * FEW_AGAIN + 1 then return end
    local all, few = ask('ZRANGE', key, 0, -2, 'WITHSCORES'), {}
    for i = 1, #all, 4 do
      local hold = read_hold(held, all[i], all[i + 1], all[i + 2] or '', all[i + 3])
      local flag = hold.status == 'late' and 'l' or hold.releases and 'r' or 'c'
      if hold.status == 'expired' then flag = flag:upper() end
      few[#few + 1] = {id = all[i]:sub(2), expires = hold.expires, taken = hold.taken or 0,
                       units = hold.units or 0, flag = flag, live = hold.status == 'live'}
    end
    held.few, held.era, held.redated, held.forced = few, 0, 0, {}
    ask('UNLINK', key)
    write_few(key, state, needed)
  end

  -- Writes a state with holds, except for the entries of a log. `change` is a hold as it is from now
  -- on, and `removes` has members of a sorted set that say otherwise.
  local function save(key, limit, state, change, removes, a, b, c, journal)
    local held = state.held
    if held.few then change_few(held, change) end
    local none_left = held.last + REMEMBERED <= held.moment
    if none_left and write_plain(key, limit, state, a, b, c, journal) then return end
    local needed = needed_until(limit, state, a, b)
    if held.few and #held.few <= FEW_MAX and limit.kind == 'n' then
      return write_few(key, state, needed)
    end
    local value = kernel[limit.kind] and kernel[limit.kind].encode(limit, a, b, c, journal) or
                  limit.signature
    local adds = {}
    if held.few then
      for _, hold in ipairs(held.few) do
        local score, data = data_of(hold, 0)
        local at = #adds
        adds[at + 1], adds[at + 2], adds[at + 3], adds[at + 4] = pair_of(hold.id, score, data)
      end
      if limit.kind ~= 'l' then ask('UNLINK', key) end
      held.few, held.is_new = nil, limit.kind ~= 'l' or not state.log.member
    elseif change then
      adds = {pair_of(change.id, data_of(change, held.era))}
    end
    local head = head_of(held, value)
    if head ~= held.member then
      adds[#adds + 1], adds[#adds + 2] = 'inf', head
      if held.member then removes[#removes + 1] = held.member end
    end
    if adds[1] then ask('ZADD', key, unpack(adds)) end
    if removes[1] and removes[1] == adds[4] then removes[1] = 'i' end  -- Written again just now.
    if removes[1] then ask('ZREM', key, unpack(removes)) end
    if held.clears then ask('ZREMRANGEBYSCORE', key, '0', ENTRIES_END) end
    local some_forgotten = forget(key, held)
    local reply = rpcall('PEXPIRE', key, ttl(needed))
    if reply ~= 1 then
      if held.is_new then ask('UNLINK', key) end  -- Nothing may stay that does not expire.
      error(type(reply) == 'table' and reply.err or 'ERR a state vanished', 0)
    end
    held.member, held.is_new, held.clears = head, nil, nil
    if some_forgotten and limit.kind == 'n' then shrink_to_few(key, state, needed) end
  end

  -- Takes units from a log, and keeps `state.log` good enough for what follows.
  local function write_entries(key, limit, state, units)
    local log = state.log
    if units == 0 and not log.moved and not (log.drop and state.held.is_new) then return end
    write_log(key, limit, log, units)
    if units > 0 then log.newest = log.now end
  end

  -- The state of now less `units`.
  local function taken_from(limit, state, units, for_now)
    if not kernel[limit.kind] then return end
    local journal = limit.kind ~= 'b' and state.now_journal or nil
    if units == 0 then return state.now_a, state.now_b, state.now_c, journal end
    return kernel[limit.kind].take(limit, units, for_now, state.now_a, state.now_b, state.now_c, journal)
  end

  -- Writes a state with holds from which `units` are taken; 0 if only what has moved.
  local function put(key, limit, state, units)
    if units == 0 and not state.moved then return end
    if limit.kind == 'l' then
      write_entries(key, limit, state, units)
      if not state.moved then return end
    end
    -- What a bucket would have lost while it was full depends on its holds; so what is taken from it
    -- cannot be refunded.
    local for_now = action == 'hold' and limit.kind ~= 'b'
    save(key, limit, state, nil, {}, taken_from(limit, state, units, for_now))
  end

  -- Gives back to a window or a bucket, and returns the state afterwards.
  local function give(key, limit, state, units)
    local a, b, c, journal = state.now_a, state.now_b, state.now_c, state.now_journal
    local given_a, given_b, given_c
    if limit.kind == 'b' then
      given_a, given_b = untake.b(limit, units, now, state.held.units, a, b)
    else
      given_a, given_b, given_c = kernel[limit.kind].give(limit, units, a, b, c)
      if given_a then journal = nil else given_a, given_b, given_c = a, b, c end
    end
    if given_a ~= a or given_b ~= b or given_c ~= c or state.moved then
      save(key, limit, state, nil, {}, given_a, given_b, given_c, journal)
    end
    return given_a, given_b, given_c
  end

  -- Refunds what was taken from a state that has holds by now.
  local function refund(key, limit, units, when, text)
    local state, last = {}, text and {} or ask('ZRANGE', key, -1, -1, 'WITHSCORES')
    if not (text or last[2] == 'inf') or limit.kind == 'b' then return false end
    read(key, limit, state, last[1], text)
    local own = kernel[limit.kind]
    if not state.held or state.moved then return false end
    local _, a, b, c, journal = own.look(limit, state.a, state.b, state.c, state.journal)
    a, b, c, journal = own.refund(limit, units, when, a, b, c, journal)
    if not a or not own.sound(limit, a, b, c) then return false end
    save(key, limit, state, nil, {}, a, b, c, journal)
    return true
  end

  -- The actions

  local OUTCOME = {denied = 0, done = 1, exists = 2, conflict = 3, too_many = 4, lost = 5}

  -- What is known of the hold on each state, and what is still stored of it if that is nothing.
  local function find_all(id)
    local known, stale = {}, {}
    for i = 1, charges do
      reading = i
      if states[i].held then known[i], stale[i] = find(KEYS[key_at + i], states[i].held, id) end
    end
    return known, stale
  end

  -- What to hold with, in a state that perhaps has no holds yet.
  local function held_of(limit, state)
    if not state.held then
      local at = moment_of(limit, state)
      state.held = {units = 0, live = 0, last = 0, at = at, era = 0, redated = 0, forced = {}, ends = 0,
                    moment = at, is_new = true, few = limit.kind ~= 'l' and {} or nil}
    end
    return state.held
  end

  -- When a hold made now expires, on each state: later than what has expired already, even if the
  -- clock was set back since.
  local function expiries(micros)
    local all = {}
    for i = 1, charges do
      local limit, state = under[i], states[i]
      local at = held_of(limit, state).at
      all[i] = larger(at + 1, smaller(TIME_MAX, moment_of(limit, state) + micros[i]))
      if all[i] > TIME_MAX then
        reading = i  -- Nobody who tells the time has applied expiries up to the last moment.
        error(FOREIGN, 0)
      end
    end
    return all
  end

  local function answer_of(outcome, part, expires, late, overdrawn, fits)
    local parts = {format('h %d %d %d %d %d', OUTCOME[outcome], part, expires, late and 1 or 0,
                          overdrawn and 1 or 0)}
    for i = 1, charges do
      local held = states[i].held
      parts[i + 1] = format('%d %d', held and held.units or 0, fits and fits[i] or 0)
    end
    return concat(parts, ' ')
  end

  -- Nothing is taken; but what has moved is written.
  local function refuse(...)
    for i = 1, charges do commit(i, 0) end
    return answer_of(...)
  end

  -- Where the state of charge 1 begins in the reply, and how to get from one to the next.
  local function each_place()
    local filling = head
    return function(limit)
      local own = filling
      filling = filling + limit.numbers
      return own
    end
  end

  -- Holds::ExpiredDownTo
  local function expired_down_to(key, held, units)
    local left, last, score, skip = held.units, held.at, held.at, 0
    if held.few then
      for _, hold in ipairs(live_few(held)) do
        if left <= units then break end
        left, last = left - hold.units, hold.expires
      end
      return last
    end
    while left > units do
      local some = ask('ZRANGEBYSCORE', key, format('(%d', score - LIVE), '(0', 'WITHSCORES', 'LIMIT',
                       skip, 2 * FORGOTTEN_MAX)
      if not some[1] then break end
      for i = 1, #some, 4 do
        local hold = read_hold(held, some[i], some[i + 1], some[i + 2] or '', some[i + 3])
        left, last = left - hold.units, hold.expires
        if left <= units then break end
      end
      skip = skip + 2 * FORGOTTEN_MAX
    end
    return last
  end

  local function reserve(first)
    local id = ARGV[first + 4 * charges]
    local admitted = look_at_all()
    local known, stale = find_all(id)
    local known_count, same, expires = 0, true, TIME_MAX
    for i = 1, charges do
      local hold = known[i]
      if hold then known_count, expires = known_count + 1, smaller(expires, hold.expires) end
      same = same and hold and hold.status == 'live' and hold.units == costs[i]
    end
    if known_count > 0 then return refuse(same and 'exists' or 'conflict', 0, expires) end
    for i = 1, charges do
      local held = states[i].held
      if held and (held.live >= HOLDS_MAX or held.units + costs[i] > EXACT_MAX) then
        return refuse('too_many', i, 0)
      end
    end
    if admitted == 0 then
      local fits = {}
      for i = 1, charges do
        reading = i
        note_leaves(i, 0)
        if under[i].kind == 'n' and costs[i] > states[i].available then
          fits[i] = expired_down_to(KEYS[key_at + i], states[i].held, under[i].amount - costs[i])
        end
      end
      return refuse('denied', 0, 0, nil, nil, fits)
    end
    if action == 'foresee' then return refuse('done', 0, 0) end
    local micros = {}
    for i = 1, charges do micros[i] = tonumber(ARGV[first + 4 * i - 2]) end
    local ends, place = expiries(micros), each_place()
    for i = 1, charges do
      reading = i
      local key, limit, state, units = KEYS[key_at + i], under[i], states[i], costs[i]
      local held, at, filling = state.held, ends[i], place(limit)
      if limit.kind == 'l' then write_entries(key, limit, state, units) end
      local taken = moment_of(limit, state)
      held.units, held.live, held.last = held.units + units, held.live + 1, larger(held.last, at)
      local hold = {id = id, expires = at, taken = taken, units = units, flag = ARGV[first + 4 * i - 1],
                    live = true}
      save(key, limit, state, hold, {stale[i]}, taken_from(limit, state, units))
      expires = smaller(expires, at)
      if limit.kind == 'n' then
        reply[filling + 1], reply[filling + 2] = held.units, larger(held.ends, at)
      end
    end
    return answer_of('done', 0, expires)
  end

  -- Corrects what is taken from a log on a hold's account, and returns the log.
  local function correct_log(key, limit, state, taken, more)
    write_entries(key, limit, state, 0)
    local log = state.log
    if more < 0 then
      shrink_log(key, {{taken, -more}})
    elseif more > 0 and log.used < EXACT_MAX then
      local keep = log.keep
      log = entries_of(key, limit.unit)
      log.keep = keep
      write_log(key, limit, log, smaller(more, EXACT_MAX - log.used))
    end
    log = entries_of(key, limit.unit)
    state.log = log
    return log
  end

  local function settle(first)
    local id = ARGV[first + 4 * charges]
    look_at_all()
    local known, stale = find_all(id)
    local late, overdrawn = false, false
    local place = each_place()
    for i = 1, charges do
      reading = i
      local key, limit, state, actual = KEYS[key_at + i], under[i], states[i], costs[i]
      local hold, filling, own = known[i], place(limit), first + 4 * (i - 1)
      local is_settled = hold and (hold.status == 'settled' or hold.status == 'late')
      late = late or not hold or hold.status == 'late' or hold.status == 'expired'
      if is_settled then
        commit(i, 0)
      else
        local held = held_of(limit, state)
        local charged, was_live, removes = 0, false, {stale[i]}
        local at, taken = moment_of(limit, state), 0
        local ended = {id = id, expires = at, taken = 0, units = 0, flag = 'l', live = false}
        if hold then
          was_live = hold.status == 'live'
          taken, ended.expires = hold.taken, hold.expires
          if was_live or not hold.releases then charged = hold.units end
          if was_live then
            held.units, held.live, ended.flag = held.units - hold.units, held.live - 1, 'c'
          end
          if hold.data then removes = {'i' .. id .. '\1' .. hold.data} end
        end
        held.last = larger(held.last, ended.expires)
        local a, b, c, journal = taken_from(limit, state, 0)
        local more = actual - charged
        if limit.kind == 'l' then
          correct_log(key, limit, state, taken, more)
        elseif limit.kind ~= 'n' and more < 0 then
          a, b, c = untake[limit.kind](limit, -more, taken, held.units, a, b, c)
        elseif limit.kind ~= 'n' and more > 0 then
          a, b, c = overdraw[limit.kind](limit, more, a, b, c)
        end
        overdrawn = overdrawn or (limit.kind ~= 'n' and actual > (hold and hold.units or 0))
        save(key, limit, state, ended, removes, a, b, c, journal)
        local log = state.log
        if limit.kind == 'l' then
          reply[filling + 1], reply[filling + 2], reply[filling + 3] = log.used, log.newest, log.oldest
        elseif limit.kind == 'n' then
          held.ends = last_live(key, held)
          reply[filling + 1], reply[filling + 2] = held.units, held.ends
        else
          reply[filling + 1], reply[filling + 2] = a, b
          if c then reply[filling + 3] = c end
        end
        if more < 0 or (limit.kind == 'n' and was_live) then announce(own + 2) end
      end
    end
    return answer_of('done', 0, 0, late, overdrawn)
  end

  local function extend(first)
    local id, micros = ARGV[first + 2 * charges], {}
    for i = 1, charges do micros[i], costs[i] = costs[i], 0 end
    look_at_all()
    local known = find_all(id)
    for i = 1, charges do
      if not known[i] or known[i].status ~= 'live' then return refuse('lost', 0, 0) end
    end
    local ends, expires, place = expiries(micros), TIME_MAX, each_place()
    for i = 1, charges do
      reading = i
      local key, limit, state, hold = KEYS[key_at + i], under[i], states[i], known[i]
      local held, at, filling = state.held, ends[i], place(limit)
      if limit.kind == 'l' then write_entries(key, limit, state, 0) end
      local was_last = hold.expires == held.last
      held.last = larger(held.last, at)
      local extended = {id = id, expires = at, taken = hold.taken, units = hold.units,
                        flag = hold.releases and 'r' or 'c', live = true}
      save(key, limit, state, extended, {hold.data and 'i' .. id .. '\1' .. hold.data},
           taken_from(limit, state, 0))
      if was_last and at < held.last then
        held.last = last_of_all(key, held)
        save(key, limit, state, nil, {}, taken_from(limit, state, 0))
      end
      expires = smaller(expires, at)
      if limit.kind == 'n' then
        held.ends = last_live(key, held)
        reply[filling + 1], reply[filling + 2] = held.units, held.ends
      end
    end
    return answer_of('done', 0, expires)
  end

  -- Holds::List
  local function list(first)
    local id = ARGV[first + 2]
    look_at_all()
    local key, held = KEYS[key_at + 1], states[1].held
    if not held then
      commit(1, 0)
      return 1
    end
    local lines = {format('h 1 %d', held.units), format('%d', held.live)}
    local function add(name, hold)
      lines[#lines + 1] = format('%d %d %d ', hold.expires, hold.taken, hold.units) ..
                          (hold.releases and 'r ' or 'c ') .. name:sub(2)
    end
    if id ~= '' then
      local hold = find(key, held, id)
      if hold and hold.status == 'live' then add('i' .. id, hold) end
    elseif held.few then
      for _, hold in ipairs(live_few(held)) do add('i' .. hold.id, hold_of(hold)) end
    else
      local some = ask('ZRANGEBYSCORE', key, format('(%d', held.at - LIVE), '(0', 'WITHSCORES', 'LIMIT',
                       0, 2 * LISTED_MAX)
      for i = 1, #some, 4 do
        add(some[i], read_hold(held, some[i], some[i + 1], some[i + 2] or '', some[i + 3]))
      end
    end
    commit(1, 0)
    return concat(lines, '\n')
  end

  return {read = read, read_slots = read_slots, put = put, give = give, refund = refund,
          reserve = reserve, foresee = reserve, settle = settle, extend = extend,
          list = list}
end
