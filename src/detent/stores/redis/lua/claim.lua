-- Answers an ask.  The result is that of `stores/memory/store.py`, with limits, because a script blocks the server:
-- once an ask has all that it can run, or all that a queue's rate allows, it skips plain fires and examines at most
-- `LOOK_MAX` others; if there are many of these, not at every ask.  Before that, it examines at most `SCAN_MAX` fires
-- that must wait.  It delays at most `PUT_OFF_MAX` fires and parks (`parked.lua`) at most `PARKED_MAX`.  The next ask
-- continues there.

local SENTENCES_MAX, LOOK_MAX, LOOKS_MANY, PUT_OFF_MAX, PARKED_MAX = 200, 200, 20, 300, 1000
local EXPIRED_MAX = 2000
local LOOK_AGAIN_S, PUT_OFF_AGAIN_S = 0.5, 0.02 -- where there was more to look at, or to put off
local HEARD_EVERY = 64 -- asks

-- What one call knows of its ask: which of its queues have fires or messages, and their rates.
local function round_of(ask, grants)
  local queues = ask.queues
  local rates, bases = rates_of(queues)
  local round = {
    ask = ask, rates = rates, bases = bases, closed = {}, granted = {}, scans = {},
    left = { runs = ask.limit - grants.count, hooks = ask.hooks or 0, sentences = SENTENCES_MAX },
    budget = SCAN_MAX, looks = LOOK_MAX, put_off = 0, parked = 0,
    first = {}, -- index of claims -> when the first of them expires
    has_fires = {}, has_messages = {}, without = {}, is_cut = nil,
  }
  if #queues > 0 then
    round.has_fires = redis.call("SMISMEMBER", name("queues"), unpack(queues))
    round.has_messages = redis.call("SMISMEMBER", name("mailboxes"), unpack(queues))
  end
  for _, job in ipairs(ask.without or {}) do
    round.without[job] = true
  end
  return round
end

-- How long a queue's rate lets nobody in.
local function closed_s(round, base)
  local rate = round.rates[base]
  if not rate or rate.by_key then
    return 0
  end
  local _, free_in_s = the_gates().usage(base, rate)
  return free_in_s
end

local function add_expired(gone, round, index, hash)
  local first = redis.call("ZRANGE", index, 0, 0, "WITHSCORES")[2]
  round.first[index] = first and tonumber(first) or math.huge
  if round.first[index] > mono then
    return
  end
  local keys = redis.call("ZRANGEBYSCORE", index, "-inf", mono, "LIMIT", 0, EXPIRED_MAX)
  if #keys > 0 then
    for _, fire in ipairs(fires.fetch(keys, hash)) do
      if fire.state == "claimed" and fire.expires <= mono then
        gone[#gone + 1] = fire
      end
    end
  end
end

-- The expired claims of the ask's queues, in order.
local function expired_of(round)
  local gone = {}
  for place, queue in ipairs(round.ask.queues) do
    if has_fires(round, place) then
      add_expired(gone, round, name("claimed", queue), "states")
    end
    if has_messages(round, place) then
      add_expired(gone, round, messages.box(queue).taken, "messages")
    end
  end
  if #gone > 1 then
    table.sort(gone, before)
  end
  return gone
end

-- Why a fire that is due may never run, whatever its lane looks like.
local function sentence_of(me)
  if me.sentence then
    return me.sentence
  elseif me.state == "claimed" then
    return me.stop or "lost with " .. me.node
  elseif me.origin == "schedule" and not fires.watermark_of(me.job) then
    return "cancelled its job was removed"
  elseif me.attempt > 0 then
    return nil
  end
  local why = me.origin == "schedule" and the_lanes().paused(me.job)
  if why then
    return why == "" and "skipped paused" or "skipped paused: " .. why
  elseif me.start_by and me.start_by < wall then
    return "missed not started by " .. me.start_text
  end
  return nil
end

local function judge(me)
  local sentence = sentence_of(me)
  if sentence then
    return "sentence", sentence
  elseif me.lane or me.origin == "schedule" then
    return the_lanes().judge(me)
  end
  return "run"
end

local function grant(fire, round)
  local ask = round.ask
  header.fence = last_fence() + 1
  fires.touch(fire)
  fire.state, fire.node, fire.ask, fire.fence, fire.doubted = "claimed", ask.node, ask.number, header.fence, nil
  fire.ttl = ask.ttl_s or fire.claim_s
  fire.expires = mono + fire.ttl
  look_before(fire.expires)
  lengthen(fire.ttl)
  fires.reach(fire)
  if not fire.sentence then
    local rate = fire.origin ~= "hook" and round.rates[round.bases[fire.queue]]
    fire.attempt = fire.attempt + 1
    fire.ran_node, fire.ran_fence, fire.ran_at = ask.node, header.fence, wall
    if rate or fire.breaker and fire.origin ~= "hook" then
      the_gates().enter(fire, rate)
    end
    if fire.late then
      fires.drop_late_hooks(fire)
    end
  end
  if fire.lane and not fire.sentence then
    the_lanes().hold(fire)
  end
  round.granted[#round.granted + 1] = fire
end

-- Do its queue's rate and its breaker let it begin?  If not, it is put off, or its queue is closed.
local function is_let_in(fire, round)
  local base = round.bases[fire.queue]
  local rate = round.rates[base]
  if not rate and not fire.breaker or fire.origin == "hook" then
    return true
  elseif closed_s(round, base) > 0 then
    round.closed[base] = true
    return false
  end
  local waits = the_gates().wait_s(fire, rate)
  if waits > 0 then
    fires.touch(fire).run_at = wall + waits
    round.put_off = round.put_off + 1
  end
  return waits == 0
end

-- What the judgement says, as far as the ask has room for it.
local function carry_out(fire, round)
  local step, sentence, gone, behind = judge(fire)
  local left, kind = round.left, fire.origin == "hook" and "hooks" or "runs"
  if gone then
    for _, holder in ipairs(gone) do
      fires.touch(holder).stop = "replaced by " .. fire.key
      wake_nodes()
    end
  end
  if step == "wait" and not fire.waits then
    fires.touch(fire).waits = true
    the_lanes().wait(fire)
  elseif step == "sentence" and left.sentences > 0 then
    fires.touch(fire).sentence, left.sentences = sentence, left.sentences - 1
    grant(fire, round)
  elseif step == "run" and left[kind] > 0 and not round.without[fire.job] and is_let_in(fire, round) then
    left[kind] = left[kind] - 1
    grant(fire, round)
  end
  if behind then
    the_parked().put(fire, behind)
    round.parked = round.parked + 1
  end
end

-- Go through one queue until there is no more to do in it.
local function serve(place, round)
  local candidates, is_narrow, looks = candidates_of(round, place), false, round.looks
  local base = round.bases[round.ask.queues[place]]
  round.closed[base] = round.closed[base] or closed_s(round, base) > 0
  while round.put_off < PUT_OFF_MAX and round.parked < PARKED_MAX do
    if not is_narrow and (round.left.runs == 0 or round.closed[base]) then
      is_narrow, candidates = true, switch_to_sentences(candidates, round, round.ask.queues[place])
    end
    local left = is_narrow and "looks" or "budget"
    local fire = round[left] > 0 and first_of(candidates)
    if not fire then
      break
    end
    round[left] = round[left] - 1
    if fire.state == "pending" and not fire.is_forgotten then
      carry_out(fire, round)
    end
  end
  local is_spent = round[is_narrow and "looks" or "budget"] == 0
  remember(candidates, is_narrow and "look" or "run", is_spent)
  if is_narrow and looks - round.looks >= LOOKS_MANY then
    redis.call("HSET", name("scans"), "looked " .. round.ask.queues[place], mono)
  end
  round.is_cut = round.is_cut or is_spent
end

-- Claim what is due for this ask: expired claims first, then queue by queue.
local function grant_due(round)
  for _, fire in ipairs(expired_of(round)) do
    carry_out(fire, round)
  end
  read_scans(round)
  if redis.call("EXISTS", name("wakes"), name("ends")) > 0 then
    round.is_cut = the_parked().look()
    fires.save()
  end
  for place in ipairs(round.ask.queues) do
    if round.budget == 0 or round.put_off >= PUT_OFF_MAX or round.parked >= PARKED_MAX then
      break
    elseif has_fires(round, place) or has_messages(round, place) then
      serve(place, round)
    end
  end
  fires.save()
end

-- How long until the first claim of an index expires; of those that were granted now, by `next_in_s`.
local function expires_in_s(round, index)
  local first = round.first[index]
  return first and first > mono and first - mono or least(index, mono)
end

local function next_in_s(round)
  if mono < header.quarantined_until then
    return header.quarantined_until - mono
  end
  local soonest = math.min(round.is_cut and LOOK_AGAIN_S or math.huge, least(name("graces"), mono))
  if round.put_off >= PUT_OFF_MAX or round.parked >= PARKED_MAX then
    soonest = math.min(soonest, PUT_OFF_AGAIN_S)
  end
  for place, queue in ipairs(round.ask.queues) do
    if has_fires(round, place) then
      local comes, plain = least(name("pending", queue), wall), least(name("plain", queue), wall)
      soonest = math.min(soonest, comes, plain, expires_in_s(round, name("claimed", queue)))
    end
    if has_messages(round, place) then
      local box = messages.box(queue)
      local comes, ready = least(box.waiting, wall), least(box.ready, wall)
      soonest = math.min(soonest, comes, ready, expires_in_s(round, box.taken))
    end
  end
  for _, fire in ipairs(round.granted) do
    soonest = math.min(soonest, fire.expires - mono)
  end
  for base in pairs(round.rates) do
    local opens = closed_s(round, base)
    soonest = opens > 0 and math.min(soonest, opens) or soonest
  end
  return soonest
end

-- Is this ask newer than those that its life made before?  When it was heard of is written down now and then.
local function is_new(ask)
  if redis.call("ZADD", name("asked"), "GT", "CH", ask.number, ask.node) == 0 then
    return false
  elseif ask.number % HEARD_EVERY == 1 then
    redis.call("ZADD", name("heard"), mono, ask.node)
  end
  return true
end

local function claim(ask)
  local grants, soonest = new_grants(), nil
  if mono < header.quarantined_until or not is_new(ask) then
    add_grants(grants, the_instances().granted_before(ask))
    soonest = next_in_s(round_of(ask, new_grants()))
  else
    if ask.dead then
      the_instances().declare_dead(ask.dead)
    end
    soonest = is_bare(ask) and grant_quickly(ask, grants)
    if not soonest then
      local round = round_of(ask, grants)
      grant_due(round)
      soonest = next_in_s(round)
      add_grants(grants, round.granted)
    end
  end
  return soonest < math.huge and exact(soonest) or cjson.null, grant_words(grants)
end

verbs.claim = claim
function verbs.declare_dead(instances)
  the_instances().declare_dead(instances)
  return true
end
