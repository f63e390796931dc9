-- Who gets what is due.  The answer is that of `stores/memory.py`, with some limits: an ask without end must
-- not keep the server from others.  So once it has all that it can run, or all that a queue's rate lets it, it
-- passes over the fires that are plain, looks at no more than `LOOK_MAX` others, to settle some, and where
-- there are more than those not at every ask; and before that at `SCAN_MAX` that have to wait.  It puts off no
-- more than `PUT_OFF_MAX`.  The next ask goes on from there.

local SENTENCES_MAX, LOOK_MAX, SCAN_MAX, PUT_OFF_MAX = 200, 200, 10000, 300
local EXPIRED_MAX = 2000
local LOOK_AGAIN_S, PUT_OFF_AGAIN_S = 0.5, 0.02 -- where there was more to look at, or to put off

-- Is there nothing but messages that only wait for room, and are some graces kept?  Where it is bare so, there is
-- much that need not be read.
local function is_bare(ask)
  if ask.without then
    return false, true
  end
  local others = { name("graces"), nil, nil, nil, nil }
  for place, queue in ipairs(ask.queues) do
    local last = 4 * place - 3
    others[last + 1], others[last + 2] = name("pending", queue), name("plain", queue)
    others[last + 3], others[last + 4] = name("claimed", queue), messages.box(queue).waiting
  end
  local count = redis.call("EXISTS", unpack(others))
  local has_graces = count > 0 and redis.call("EXISTS", others[1]) == 1
  return count == (has_graces and 1 or 0), has_graces
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

-- What one call knows of its ask: which of its queues have fires or messages, and their rates.
local function round_of(ask)
  local queues = ask.queues
  local rates, bases = rates_of(queues)
  local bare, has_graces = is_bare(ask)
  local round = {
    ask = ask, rates = rates, bases = bases, closed = {}, granted = {}, grants = new_grants(), scans = {},
    left = { runs = ask.limit, hooks = ask.hooks or 0, sentences = SENTENCES_MAX },
    budget = SCAN_MAX, looks = LOOK_MAX, put_off = 0, is_bare = bare, has_graces = has_graces,
    first = {}, -- index of claims -> when the first of them expires
    comes = {}, -- index of messages -> when the next is due, of those that were read to their end
    has_fires = nil, has_messages = nil, without = nil, is_cut = nil,
    soonest = math.huge, -- when the first expires of what was granted quickly
  }
  if #queues > 0 and not bare then
    round.has_fires = redis.call("SMISMEMBER", name("queues"), unpack(queues))
  end
  if #queues > 1 or not bare and #queues > 0 then
    round.has_messages = redis.call("SMISMEMBER", name("mailboxes"), unpack(queues))
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
  local keys = redis.call("ZRANGEBYSCORE", index, "-inf", exact(mono), "LIMIT", 0, EXPIRED_MAX)
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
  elseif me.origin == "schedule" and not fires.mark_of(me.job) then
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
  world.fence = (world.fence or leap(0)) + 1
  fires.touch(fire)
  fire.state, fire.node, fire.ask, fire.fence, fire.doubted = "claimed", ask.node, ask.number, world.fence, nil
  fire.ttl = ask.ttl_s or fire.claim_s
  fire.expires = mono + fire.ttl
  world.longest = math.max(world.longest, fire.ttl)
  fires.reach(fire)
  if not fire.sentence then
    local rate = fire.origin ~= "hook" and round.rates[round.bases[fire.queue]]
    fire.attempt = fire.attempt + 1
    fire.ran_node, fire.ran_fence, fire.ran_at = ask.node, world.fence, wall
    if rate or fire.breaker and fire.origin ~= "hook" then
      the_gates().enter(fire, rate)
    end
    if fire.late then
      fires.drop_late_hooks(fire)
    end
  end
  if fire.lane then
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
  local step, sentence, gone = judge(fire)
  local left, kind = round.left, fire.origin == "hook" and "hooks" or "runs"
  if gone then
    for _, holder in ipairs(gone) do
      fires.touch(holder).stop = "replaced by " .. fire.key
      ring()
    end
  end
  if step == "wait" and not fire.waits then
    fires.touch(fire).waits = true
    the_lanes().hold(fire)
  elseif step == "sentence" and left.sentences > 0 then
    fires.touch(fire).sentence, left.sentences = sentence, left.sentences - 1
    grant(fire, round)
  elseif step == "run" and left[kind] > 0 and not round.without[fire.job] and is_let_in(fire, round) then
    left[kind] = left[kind] - 1
    grant(fire, round)
  end
end

-- Has the queue nothing but plain messages, and nobody was served yet but such?
local function is_quick(place, round)
  return round.is_bare and #round.granted == 0 and not round.rates[round.bases[round.ask.queues[place]]]
end

-- Go through one queue until there is no more to do in it.
local function serve(place, round)
  if is_quick(place, round) and grant_quickly(round, round.ask.queues[place]) then
    return
  end
  local sources, is_narrow = sources_of(round, place), false
  local base = round.bases[round.ask.queues[place]]
  round.closed[base] = round.closed[base] or closed_s(round, base) > 0
  while round.put_off < PUT_OFF_MAX do
    if not is_narrow and (round.left.runs == 0 or round.closed[base]) then
      if round.is_bare then -- there is nobody to sentence
        break
      end
      is_narrow, sources = true, turn_to_sentences(sources, round)
    end
    local left = is_narrow and "looks" or "budget"
    local fire = round[left] > 0 and first_of(sources)
    if not fire then
      break
    end
    round[left] = round[left] - 1
    if fire.state == "pending" and not fire.is_forgotten then
      carry_out(fire, round)
    end
  end
  local is_spent = round[is_narrow and "looks" or "budget"] == 0
  remember(sources, is_narrow and "look" or "run", is_spent)
  if is_narrow and is_spent then
    redis.call("HSET", name("scans"), "looked", exact(mono))
  end
  round.is_cut = round.is_cut or is_spent
end

-- Claim what is due for this ask: expired claims first, then queue by queue.
local function grant_due(round)
  round.without = {}
  for _, job in ipairs(round.ask.without or {}) do
    round.without[job] = true
  end
  for _, fire in ipairs(expired_of(round)) do
    carry_out(fire, round)
  end
  if not round.is_bare then
    read_scans(round)
  end
  for place in ipairs(round.ask.queues) do
    local is_full = round.is_bare and round.left.runs == 0
    if is_full or round.budget == 0 or round.put_off >= PUT_OFF_MAX then
      break
    elseif has_fires(round, place) or has_messages(round, place) then
      serve(place, round)
    end
  end
end

-- How long until the first claim of an index expires; of those that were granted now, by `next_in_s`.
local function expires_in_s(round, index)
  local first = round.first[index]
  return first and first > mono and first - mono or least(index, mono)
end

local function next_in_s(round)
  if mono < world.calm_until then
    return world.calm_until - mono
  end
  local soonest = round.is_cut and LOOK_AGAIN_S or math.huge
  if round.has_graces then
    soonest = math.min(soonest, least(name("graces"), mono))
  end
  if round.put_off >= PUT_OFF_MAX then
    soonest = math.min(soonest, PUT_OFF_AGAIN_S)
  end
  for place, queue in ipairs(round.ask.queues) do
    if has_fires(round, place) then
      local comes, plain = least(name("pending", queue), wall), least(name("plain", queue), wall)
      soonest = math.min(soonest, comes, plain, expires_in_s(round, name("claimed", queue)))
    end
    if has_messages(round, place) then
      local box = messages.box(queue)
      local comes = round.is_bare and round.put_off == 0 and round.comes[box.ready]
      comes = comes and comes - wall or least(box.ready, wall)
      soonest = math.min(soonest, comes, expires_in_s(round, box.taken))
      if not round.is_bare then
        soonest = math.min(soonest, least(box.waiting, wall))
      end
    end
  end
  soonest = math.min(soonest, round.soonest)
  for _, fire in ipairs(round.granted) do
    soonest = math.min(soonest, fire.expires - mono)
  end
  for base in pairs(round.rates) do
    local opens = closed_s(round, base)
    soonest = opens > 0 and math.min(soonest, opens) or soonest
  end
  return soonest
end

local function claim(ask)
  local packed, round = redis.call("HGET", name("asks"), ask.node), round_of(ask)
  local granted = round.granted
  if mono < world.calm_until or ask.number <= (packed and cmsgpack.unpack(packed).number or 0) then
    granted = the_lives().granted_before(ask)
  else
    redis.call("HSET", name("asks"), ask.node, cmsgpack.pack({ number = ask.number, at = mono }))
    if ask.dead then
      the_lives().bury(ask.dead)
    end
    grant_due(round)
    fires.save()
  end
  local soonest = next_in_s(round)
  return { next_in_s = soonest < math.huge and exact(soonest) or nil }, told_of(add_grants(round.grants, granted))
end

verbs.claim = claim
function verbs.bury(lives)
  the_lives().bury(lives)
  return true
end
