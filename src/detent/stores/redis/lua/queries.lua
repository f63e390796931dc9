-- Finds and prunes fires; reads and writes notes.

local PAGE_MAX, EXAMINE_MAX = 200, 500 -- rows that one call answers with, and looks at: others wait meanwhile
local FETCH_MIN, FETCH_MAX = 16, 128 -- rows that are read at a time
local OPEN_MAX = 1000 -- fires that are open are looked through, rather than all, if they are no more
local WAKING = { ["pause/"] = true, ["rate/"] = true, ["breaker/"] = true } -- notes that change what may run
local PRUNE_MAX, REMEMBER_ASKS_S, REMEMBER_JOBS_S = 500, 86400, 30 * 86400
local RESULT_S = 3600 -- the default of `model.Policy`

local function number(value)
  return value and exact(value)
end

local function attempt_of(one)
  if one.number then
    return one
  end
  local number, node, fence, started, ended, outcome, rest = unpack(one) -- a message's
  local more = cjson.decode(rest)
  return {
    number = number, node = node, fence = fence, started = started, ended = ended, outcome = outcome,
    status = more.status, took = more.took_s,
  }
end

local function attempts_of(fire, tails)
  local told = {}
  for place, packed in ipairs(fire.attempts or {}) do
    local one, field = attempt_of(packed), fire.key .. "#" .. place
    told[place] = {
      number = one.number, node = one.node, fence = exact(one.fence), outcome = one.outcome,
      started = exact(one.started), ended = exact(one.ended), status = one.status, took = exact(one.took),
      result = redis.call("HGET", name("results"), field) or nil,
    }
    if tails then
      tails[#tails + 1] = redis.call("HGET", name("tails"), field) or ""
    end
  end
  return told
end

local function row_of(fire, tails)
  return {
    state = fire.state, attempt = fire.attempt, node = fire.node, fence = exact(fire.fence or 0),
    run_at = number(fire.run_at), claimed_at = number(fire.ran_at), over_at = number(fire.over_at),
    outcome = fire.outcome, stop = fire.stop, attempts = attempts_of(fire, tails),
  }
end

local function find_one(key)
  local fire = fires.get(key)
  if not fire then
    return { rows = {} }, {}
  end
  local texts = { redis.call("HGET", name("texts"), key) }
  return { rows = { row_of(fire, texts) } }, texts
end

-- These fires as a source, as far as they are in the part of history that is searched.
local function sorted(some, query)
  local places, next_one = {}, 1
  for _, fire in ipairs(some) do
    local is_in = not query.before or is_later(query.before, fire)
    is_in = is_in and (not query.since or fire.due >= query.since)
    if is_in and (not query["until"] or fire.due <= query["until"]) then
      places[#places + 1] = fire
    end
  end
  table.sort(places, is_later)
  return {
    peek = function() return places[next_one] end,
    skip = function() next_one = next_one + 1 end,
  }
end

-- The fires of these indices, sorted; nil: there are too many of them to sort.
local function few_of(indices, query, hash)
  local count, some = 0, {}
  for _, index in ipairs(indices) do
    count = count + redis.call("ZCARD", index)
  end
  if count > OPEN_MAX then
    return nil
  end
  for _, index in ipairs(indices) do
    for _, fire in ipairs(fires.fetch(redis.call("ZRANGE", index, 0, -1), hash)) do
      some[#some + 1] = fire
    end
  end
  return sorted(some, query)
end

local function set_of(list)
  local set = {}
  for _, one in ipairs(list) do
    set[one] = true
  end
  return next(set) and set or nil
end

local function are_dead(kinds)
  for _, kind in ipairs(kinds) do
    if not is_dead(kind) then
      return false
    end
  end
  return #kinds > 0
end

-- The indices of these kinds, of the queues that were asked for.
local function indices_of(query, set, kinds)
  local indices = {}
  for _, queue in ipairs(#query.queues > 0 and query.queues or redis.call("SMEMBERS", name(set))) do
    for _, kind in ipairs(kinds) do
      indices[#indices + 1] = name(kind, queue)
    end
  end
  return indices
end

-- Where the messages that were asked for may be: as few as can be told.
local function messages_of(query)
  local sources = {}
  if query.state == "over" and are_dead(query.kinds) then
    for _, index in ipairs(indices_of(query, "mailboxes", { "dead" })) do
      sources[#sources + 1] = latest_of(index, query)
    end
    return sources
  end
  if query.state == "pending" or query.state == "claimed" then
    local kinds = query.state == "pending" and { "ready", "waiting", "apart" } or { "taken" }
    local few = few_of(indices_of(query, "mailboxes", kinds), query, "messages")
    if few then
      return { few }
    end
  end
  for _, job in ipairs(query.jobs or redis.call("SMEMBERS", name("tasks"))) do
    sources[#sources + 1] = latest_of(name("book", job), query)
  end
  return sources
end

local function sources_of(query)
  if query.keys then
    return { sorted(fires.fetch(query.keys), query) }
  end
  local kinds = { pending = { "open" }, claimed = { "open" }, over = { "done" }, [""] = { "open", "done" } }
  local sources, origins = {}, set_of(query.origins)
  if not origins or origins.push then
    sources = messages_of(query)
  end
  local few = query.state == "claimed" and few_of(indices_of(query, "queues", { "claimed" }), query, "states")
  if few then -- else all that is planned ahead would come first
    sources[#sources + 1] = few
    return sources
  end
  for _, kind in ipairs(kinds[query.state] or {}) do
    for _, job in ipairs(query.jobs or { false }) do
      sources[#sources + 1] = latest_of(name(kind, job or nil), query)
    end
  end
  return sources
end

-- What waits stands in one of several indices of its queue.
local function upcoming_of(query)
  local sources, origins = {}, set_of(query.origins)
  local kinds = {}
  if not origins or origins.push then
    kinds = { ready = "mailboxes", waiting = "mailboxes", apart = "mailboxes" }
  end
  kinds.pending, kinds.plain, kinds.aside = "queues", "queues", "queues"
  for kind, set in pairs(kinds) do
    for _, queue in ipairs(#query.queues > 0 and query.queues or redis.call("SMEMBERS", name(set))) do
      sources[#sources + 1] = next_of(name(kind, queue), query)
    end
  end
  return sources
end

local function is_among(value, set)
  return not set or set[value] or false
end

local function matcher_of(query)
  local origins, queues, kinds = set_of(query.origins), set_of(query.queues), set_of(query.kinds)
  local jobs = query.jobs and set_of(query.jobs)
  return function(fire)
    return is_among(fire.origin, origins)
      and is_among(fire.queue, queues)
      and (query.state == "" or query.state == fire.state)
      and is_among(fire.job, jobs)
      and (not query.since or fire.due >= query.since)
      and (not query["until"] or fire.due <= query["until"])
      and (not kinds or fire.outcome and kinds[string.match(fire.outcome, "^%S+")])
  end
end

-- The next places, and their fires by key.  What is in two indices comes twice in a row.
local function take(next_place, count)
  local places, keys = {}, {}
  for number = 1, count do
    places[number] = next_place()
    if not places[number] then
      break
    end
    keys[number] = places[number].key
  end
  fires.fetch(keys) -- at once: `fires.get` finds them then
  return places
end

-- One page of what matches, and where the next begins.
local function find(query)
  if query.key then
    return find_one(query.key)
  end
  local rows, texts, matches, place, looked = {}, {}, matcher_of(query), nil, 0
  local sources = query.upcoming and upcoming_of(query) or sources_of(query)
  local next_place = merged(sources, query.upcoming and is_sooner or is_later)
  local most = math.min(query.limit, PAGE_MAX)
  while looked < EXAMINE_MAX and #rows < most do
    local count = math.min(math.max(most - #rows, FETCH_MIN), FETCH_MAX)
    local places = take(next_place, count)
    for _, one in ipairs(places) do
      local fire = not (place and place.key == one.key) and fires.get(one.key)
      place, looked = one, looked + 1
      if fire and matches(fire) then
        rows[#rows + 1] = row_of(fire)
        texts[#texts + 1] = redis.call("HGET", name("texts"), fire.key)
        if #rows >= most then
          break
        end
      end
    end
    if #places < count and #rows < most then
      return { rows = rows, looked = looked }, texts
    end
  end
  return { rows = rows, looked = looked, before = place and { due = exact(place.due), key = place.key } }, texts
end

-- Is it an instant that a plan could record again?
local function is_to_come(fire)
  local watermark = fires.watermark_of(fire.job)
  return fire.origin == "schedule" and fire.due > math.min(wall, watermark and watermark.at or wall)
end

-- Until when its result is kept, whatever the number of fires.  The policy is a text within the fire's text.
local function result_until(fire)
  local text = redis.call("HGET", name("texts"), fire.key) or ""
  local policy = string.match(text, '"policy":"(.-[^\\])"') or ""
  if string.find(policy, '\\"drop_result\\":true', 1, true) then
    return 0
  end
  return fire.over_at + (tonumber(string.match(policy, '\\"result_s\\":([^,}]+)')) or RESULT_S)
end

-- Is it a dead letter, does its key still count as taken, or is its result kept for longer?
local function is_wanted(fire)
  local is_free = is_success(fire.outcome) and fire.due + (fire.unique_s or 0) <= wall
  return fire.origin == "push" and (not is_free or result_until(fire) > wall)
end

local function prune_these(keys, is_surplus)
  local gone = 0
  for _, fire in ipairs(fires.fetch(keys, "messages")) do
    if not is_to_come(fire) and not (is_surplus and is_wanted(fire)) then
      fires.reach(fire)
      fires.forget(fire)
      gone = gone + 1
    end
  end
  return gone
end

-- All but the newest of a job that are over, the oldest first, from a place on.  Answers how many went, how
-- many were looked at, and whether there are more.
local function prune_job(job, keep, most, passed)
  local index = name("done", job)
  local surplus = redis.call("ZCARD", index) - keep
  if surplus <= passed then
    return 0, 0, false
  end
  local keys = redis.call("ZRANGE", index, passed, math.min(surplus, passed + most) - 1)
  return prune_these(keys, true), #keys, surplus > passed + #keys
end

local function prune_surplus(asked)
  local page, gone, left = redis.call("SSCAN", name("jobs"), asked.cursor, "COUNT", 100), 0, PRUNE_MAX
  local from = set_of(page[2])
  from = from and from[asked.job] and asked.job -- the call before this stopped in the middle of it
  for _, job in ipairs(page[2]) do
    if not from or from == job then
      local passed = from and asked.passed or 0
      local some, seen, is_more = prune_job(job, asked.keep, math.max(left, 1), passed)
      gone, left, from = gone + some, left - seen, nil
      if is_more then
        return { gone = gone, cursor = asked.cursor, job = job, passed = passed + seen - some, is_last = false }
      elseif redis.call("EXISTS", name("done", job)) == 0 then
        redis.call("SREM", name("jobs"), job)
      end
    end
  end
  return { gone = gone, cursor = page[1], job = "", passed = 0, is_last = page[1] == "0" }
end

local function prune_old(asked)
  local since = exact(wall - asked.older_than_s)
  local keys = redis.call("ZRANGEBYSCORE", name("over"), "-inf", "(" .. since, "LIMIT", asked.passed, PRUNE_MAX)
  local gone = prune_these(keys, false)
  return { gone = gone, passed = asked.passed + #keys - gone, is_last = #keys < PRUNE_MAX }
end

-- What is known of jobs that went: hosts come and go, and each may have had jobs of its own name.
local function prune_jobs(asked)
  local since, gone = wall - math.max(asked.older_than_s, REMEMBER_JOBS_S), 0
  local page = redis.call("HSCAN", name(asked.of), asked.cursor, "COUNT", PRUNE_MAX)
  for place = 1, #page[2], 2 do
    local job = page[2][place]
    local is_silent = tonumber(page[2][place + 1]) < since and not fires.watermark_of(job)
    if is_silent and redis.call("EXISTS", name("open", job), name("done", job), name("book", job)) == 0 then
      gone = gone + redis.call("HDEL", name(asked.of), job)
    end
  end
  return { gone = gone, cursor = page[1], is_last = page[1] == "0" }
end

-- What nobody asks for any more: instances that are silent, notes and graces that ended, queues that are empty.
local function tidy_up()
  for _, life in ipairs(redis.call("ZRANGE", name("asked"), 0, -1)) do
    local heard = tonumber(redis.call("ZSCORE", name("heard"), life))
    if not heard then
      redis.call("ZADD", name("heard"), exact(mono), life)
    elseif heard <= mono - REMEMBER_ASKS_S then
      redis.call("ZREM", name("asked"), life)
      redis.call("ZREM", name("heard"), life)
    end
  end
  local notes = redis.call("HGETALL", name("notes"))
  for place = 1, #notes, 2 do
    local note = cmsgpack.unpack(notes[place + 1])
    if note.expires and note.expires <= mono then
      redis.call("HDEL", name("notes"), notes[place])
    end
  end
  redis.call("ZREMRANGEBYSCORE", name("graces"), "-inf", exact(mono))
  for _, queue in ipairs(redis.call("SMEMBERS", name("mailboxes"))) do
    local box = messages.box(queue)
    local there = { box.ready, box.waiting, box.taken, name("apart", queue), name("dead", queue) }
    if redis.call("EXISTS", unpack(there)) == 0 then
      redis.call("SREM", name("mailboxes"), queue)
    end
  end
  for _, job in ipairs(redis.call("SMEMBERS", name("tasks"))) do
    if redis.call("EXISTS", name("book", job)) == 0 then
      redis.call("SREM", name("tasks"), job)
    end
  end
  local charges = redis.call("ZRANGEBYSCORE", name("charged"), "-inf", exact(mono), "LIMIT", 0, PRUNE_MAX)
  for _, charged in ipairs(charges) do
    redis.call("DEL", name("charges", charged))
    redis.call("ZREM", name("charged"), charged)
  end
  for _, queue in ipairs(redis.call("SMEMBERS", name("queues"))) do
    local there = { name("pending", queue), name("plain", queue), name("claimed", queue), name("aside", queue) }
    if redis.call("EXISTS", unpack(there)) == 0 then
      redis.call("SREM", name("queues"), queue)
    end
  end
  return true
end

local function note(asked)
  if asked.text == "" then
    redis.call("HDEL", name("notes"), asked.name)
  else
    local ends = asked.ttl_s > 0 and mono + asked.ttl_s or nil
    local packed = cmsgpack.pack({ text = asked.text, written = wall, expires = ends })
    redis.call("HSET", name("notes"), asked.name, packed)
  end
  if string.sub(asked.name, 1, #"pause/") == "pause/" then
    fires.bring_back(redis.call("ZRANGE", name("open", string.sub(asked.name, #"pause/" + 1)), 0, -1))
  end
  if WAKING[string.match(asked.name, "^[^/]*/")] then
    look_again()
    wake_nodes()
  end
  return true
end

local function notes(asked)
  local flat, told = redis.call("HGETALL", name("notes")), {}
  for place = 1, #flat, 2 do
    local one = cmsgpack.unpack(flat[place + 1])
    local is_asked = string.sub(flat[place], 1, #asked.prefix) == asked.prefix
    if is_asked and (not one.expires or one.expires > mono) then
      local ends = one.expires and exact(wall + one.expires - mono) or nil
      told[#told + 1] = { name = flat[place], text = one.text, written = exact(one.written), ends = ends }
    end
  end
  return told
end

verbs.prune_surplus, verbs.prune_old, verbs.prune_jobs = prune_surplus, prune_old, prune_jobs
verbs.tidy_up = tidy_up
verbs.find, verbs.note, verbs.notes = find, note, notes
