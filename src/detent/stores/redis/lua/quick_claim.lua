-- The fast path for claims of messages that wait only for room, in bare queues, which have no other fires.  The rules
-- are those of `grant`, but the packed state is changed without a table for each message.
--
-- To check whether queues are bare takes several reads, so `header` keeps the result for later asks:
--   bare_of       the queues, as the ask named them
--   bare_at       `recorded` at that time; every change that could matter increments it (`look_again`)
--   bare_comes    when (mono) the first claim expires or the next message is due there, or later
--   bare_until    when (mono) to check again in any case

local LOOK_S = 1
local BARE_MAX = 200 -- bytes of names: they are written with every change of `header`
local SCAN_MAX = 10000 -- that one ask goes through

-- What is told of each claim: `grant_words`.
local function new_grants()
  return { -- with places for one
    keys = { nil }, jobs = { nil }, ttls = { nil }, fences = { nil }, attempts = { nil }, sentences = {}, count = 0,
  }
end

-- The rates of these queues, and what each is called there: priorities share one.
local function rates_of(queues)
  local asked, bases, rates = {}, {}, {}
  for place = 1, #queues do
    local base = string.match(queues[place], "^[^^]*")
    bases[queues[place]], asked[place] = base, "rate/" .. base
  end
  for place, packed in ipairs(fields("notes", asked)) do
    local text = note_of(packed)
    rates[bases[queues[place]]] = text and cjson.decode(text) or nil
  end
  return rates, bases
end

local function has_others(queues)
  local others = { name("graces") }
  for place = 1, #queues do
    local queue, last = queues[place], #others
    others[last + 1], others[last + 2] = name("pending", queue), name("plain", queue)
    others[last + 3], others[last + 4] = name("claimed", queue), messages.box(queue).waiting
    others[last + 5], others[last + 6] = name("aside", queue), name("apart", queue)
  end
  local rates = rates_of(queues)
  return next(rates) ~= nil or redis.call("EXISTS", unpack(others)) > 0
end

-- How long until the first claim of a message there expires, or the next message is due.
local function comes_in_s(queues)
  local soonest = math.huge
  for place = 1, #queues do
    local box = messages.box(queues[place])
    local first = redis.call("ZRANGE", box.taken, 0, 0, "WITHSCORES")[2]
    soonest = math.min(soonest, first and tonumber(first) - mono or math.huge, least(box.ready, wall))
  end
  return soonest
end

-- Is there nothing but messages that only wait for room, and claims that hold?
local function is_bare(ask)
  local queues = ask.queues
  if ask.without or #queues == 0 or ask.limit > SCAN_MAX then
    return false
  end
  local of = #queues == 1 and queues[1] or table.concat(queues, "\n")
  if header.bare_of == of and header.bare_at == header.recorded and mono < header.bare_until then
    return true
  end
  local comes = not has_others(queues) and comes_in_s(queues) or 0
  if comes <= 0 then
    return false
  end
  header.bare_of, header.bare_at = #of <= BARE_MAX and of or "", header.recorded
  header.bare_comes, header.bare_until = mono + comes, mono + math.min(comes, LOOK_S)
  return true
end

-- Grant these, in order, up to one that is not due, or that needs the rules in full.  Answers how many, and whether
-- it stopped at one of the latter.
local function take(ask, grants, keys, box)
  local node, number, kept = ask.node, ask.number, redis.call("HMGET", KEPT, unpack(keys))
  local fence, packs, moved, count, first = last_fence(), { nil, nil }, { nil, nil }, 0, grants.count
  local is_stuck, last_ttl, expires = false, nil, nil
  for place = 1, #keys do
    local state, queue, job, due, run_at, attempt, claim_s, _, _, _, _, _, _, _, _, over_at, outcome, attempts,
      unique_s, rare
    if kept[place] then
      state, queue, job, due, run_at, attempt, claim_s, _, _, _, _, _, _, _, _, over_at, outcome, attempts,
        unique_s, rare = cmsgpack.unpack(kept[place])
    end
    if state ~= "pending" or rare then
      is_stuck = true
      break
    elseif run_at > wall then
      break
    end
    local ttl = ask.ttl_s or claim_s
    if ttl ~= last_ttl then
      last_ttl, expires = ttl, mono + ttl
      lengthen(ttl)
      look_before(expires)
    end
    count, fence, attempt = count + 1, fence + 1, attempt + 1
    local at, of = 2 * count, first + count
    packs[at - 1], packs[at] = keys[place], cmsgpack.pack(
      "claimed", queue, job, due, run_at, attempt, claim_s, node, number, fence, ttl, expires, node, fence, wall,
      over_at, outcome, attempts, unique_s, nil
    )
    moved[at - 1], moved[at] = expires, keys[place]
    grants.keys[of], grants.jobs[of], grants.ttls[of] = keys[place], job, ttl
    grants.fences[of], grants.attempts[of] = fence, attempt
  end
  if count > 0 then
    header.fence, grants.count = fence, first + count
    call_with("HSET", KEPT, packs)
    call_with("ZADD", box.taken, moved)
    redis.call("ZREM", box.ready, unpack(keys, 1, count))
  end
  return count, is_stuck
end

-- Answers whether it stopped at one that needs the rules in full.
local function take_from(box, ask, grants)
  while grants.count < ask.limit do
    local most = math.min(ask.limit - grants.count, CHUNK)
    local keys = redis.call("ZRANGE", box.ready, 0, most - 1)
    if #keys == 0 then
      return false
    end
    local count, is_stuck = take(ask, grants, keys, box)
    if count < most then
      return is_stuck
    end
  end
  return false
end

-- Grant what is due in queues that are bare.  Answers how long until there may be more; nil: the rest needs the rules in
-- full.
local function grant_quickly(ask, grants)
  for place = 1, #ask.queues do
    if take_from(messages.box(ask.queues[place]), ask, grants) then
      return nil
    end
  end
  return grants.count == ask.limit and header.bare_comes - mono or comes_in_s(ask.queues)
end
