-- Book-keeping: finding, pruning, notes.

local PAGE_MAX, EXAMINE_MAX = 200, 2000 -- rows that one call answers with, and looks at
local CHUNK_FOUND = 64
local PRUNE_MAX, REMEMBER_ASKS_S, REMEMBER_JOBS_S = 500, 86400, 30 * 86400

local function number(value)
  return value and exact(value)
end

local function attempts_of(fire, tails)
  local told = {}
  for place, one in ipairs(fire.attempts or {}) do
    local field = fire.key .. "#" .. place
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

-- The fires of an index from a place on, latest due first.
local function latest_of(index, query)
  local rank, chunk, place = 0, {}, 1
  if query.before then
    rank = redis.call("ZCOUNT", index, "(" .. exact(query.before.due), "+inf")
  elseif query["until"] then
    rank = redis.call("ZCOUNT", index, "(" .. exact(query["until"]), "+inf")
  end
  local source = {}
  function source.peek()
    while place > #chunk do
      chunk, place = redis.call("ZREVRANGE", index, rank, rank + CHUNK_FOUND - 1, "WITHSCORES"), 1
      rank = rank + #chunk / 2
      if #chunk == 0 then
        return nil
      end
    end
    local due = tonumber(chunk[place + 1])
    if query.since and due < query.since then
      return nil
    end
    return { due = due, key = chunk[place] }
  end
  function source.skip()
    place = place + 2
  end
  return source
end

local function is_later(one, other)
  return one.due > other.due or one.due == other.due and one.key > other.key
end

local function indices_of(query)
  local kinds = { pending = { "open" }, claimed = { "open" }, over = { "done" }, [""] = { "open", "done" } }
  local sources = {}
  for _, kind in ipairs(kinds[query.state] or {}) do
    sources[#sources + 1] = latest_of(name(kind, query.job), query)
  end
  return sources
end

local function matches(fire, query)
  local is_of_origin = #query.origins == 0
  for _, origin in ipairs(query.origins) do
    is_of_origin = is_of_origin or origin == fire.origin
  end
  return is_of_origin and (query.state == "" or query.state == fire.state)
end

-- One page of what matches, and where the next begins.
local function find(query)
  if query.key then
    return find_one(query.key)
  end
  local rows, texts, sources, place = {}, {}, indices_of(query), nil
  for _ = 1, EXAMINE_MAX do
    place = fires.first_of(sources, is_later)
    if not place then
      return { rows = rows }, texts
    end
    local fire = (not query.before or is_later(query.before, place)) and fires.get(place.key)
    if fire and matches(fire, query) then
      rows[#rows + 1] = row_of(fire)
      texts[#texts + 1] = redis.call("HGET", name("texts"), fire.key)
    end
    if #rows >= math.min(query.limit, PAGE_MAX) then
      break
    end
  end
  return { rows = rows, before = { due = exact(place.due), key = place.key } }, texts
end

-- Is it an instant that a plan could record again?
local function is_to_come(fire)
  local mark = fires.mark_of(fire.job)
  return fire.origin == "schedule" and fire.due > math.min(wall, mark and mark.at or wall)
end

local function prune_these(keys)
  local gone = 0
  for _, fire in ipairs(fires.fetch(keys)) do
    if not is_to_come(fire) then
      fires.reach(fire)
      fires.forget(fire)
      gone = gone + 1
    end
  end
  return gone
end

-- All but the newest of a job that are over, the oldest first.
local function prune_job(job, keep, most)
  local index = name("done", job)
  local surplus = redis.call("ZCARD", index) - keep
  if surplus <= 0 then
    return 0, 0
  end
  local keys = redis.call("ZRANGE", index, 0, math.min(surplus, most) - 1)
  return prune_these(keys), surplus - #keys
end

local function prune_surplus(asked)
  local page, gone, left = redis.call("SSCAN", name("jobs"), asked.cursor, "COUNT", 100), 0, PRUNE_MAX
  for _, job in ipairs(page[2]) do
    local some, more = prune_job(job, asked.keep, math.max(left, 1))
    gone, left = gone + some, left - some
    if some > 0 and more > 0 then
      return { gone = gone, cursor = asked.cursor, is_last = false }
    elseif redis.call("EXISTS", name("done", job)) == 0 then
      redis.call("SREM", name("jobs"), job)
    end
  end
  return { gone = gone, cursor = page[1], is_last = page[1] == "0" }
end

local function prune_old(asked)
  local since = exact(wall - asked.older_than_s)
  local keys = redis.call("ZRANGEBYSCORE", name("over"), "-inf", "(" .. since, "LIMIT", asked.passed, PRUNE_MAX)
  local gone = prune_these(keys)
  return { gone = gone, passed = asked.passed + #keys - gone, is_last = #keys < PRUNE_MAX }
end

-- What is known of jobs that went: hosts come and go, and each may have had jobs of its own name.
local function prune_jobs(asked)
  local since, gone = wall - math.max(asked.older_than_s, REMEMBER_JOBS_S), 0
  local page = redis.call("HSCAN", name(asked.of), asked.cursor, "COUNT", PRUNE_MAX)
  for place = 1, #page[2], 2 do
    local job = page[2][place]
    local is_silent = tonumber(page[2][place + 1]) < since and not fires.mark_of(job)
    if is_silent and redis.call("EXISTS", name("open", job), name("done", job)) == 0 then
      gone = gone + redis.call("HDEL", name(asked.of), job)
    end
  end
  return { gone = gone, cursor = page[1], is_last = page[1] == "0" }
end

-- What nobody asks for any more: lives that are silent, notes and graces that ended, queues that are empty.
local function tidy_up()
  local asks = redis.call("HGETALL", name("asks"))
  for place = 1, #asks, 2 do
    if cmsgpack.unpack(asks[place + 1]).at <= mono - REMEMBER_ASKS_S then
      redis.call("HDEL", name("asks"), asks[place])
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
  for _, queue in ipairs(redis.call("SMEMBERS", name("queues"))) do
    if redis.call("EXISTS", name("pending", queue), name("plain", queue), name("claimed", queue)) == 0 then
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
    redis.call("HSET", name("notes"), asked.name, cmsgpack.pack({ text = asked.text, written = wall, expires = ends }))
  end
  if string.sub(asked.name, 1, 6) == "pause/" then
    ring()
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

verbs.prune_surplus, verbs.prune_old, verbs.prune_jobs, verbs.tidy_up = prune_surplus, prune_old, prune_jobs, tidy_up
verbs.find, verbs.note, verbs.notes = find, note, notes
