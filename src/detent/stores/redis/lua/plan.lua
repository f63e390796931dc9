-- Records an app's jobs and their planned fires: one chain of plans without a gap for each job.

local RETURN_S = 3600 -- as in `stores.base`

local function watermarks_of(watermarks)
  local flat = {}
  for job, watermark in pairs(watermarks) do
    flat[#flat + 1] = { job, exact(watermark.at), watermark.revision }
  end
  local left_s = header.quarantined_until - mono
  return { generation = header.generation, watermarks = flat, quarantined_until = left_s > 0 and exact(wall + left_s) or nil }
end

local function all_watermarks()
  local flat, watermarks = redis.call("HGETALL", name("marks")), {}
  for place = 1, #flat, 2 do
    watermarks[flat[place]] = cmsgpack.unpack(flat[place + 1])
  end
  return watermarks
end

local function set_watermark(job, watermark)
  redis.call("HSET", name("marks"), job, cmsgpack.pack(watermark))
end

-- The fires that plans recorded for this job and that no node has claimed yet.
local function unattempted(job)
  local found = {}
  for _, fire in ipairs(fires.fetch(redis.call("ZRANGE", name("open", job), 0, -1))) do
    if fire.state == "pending" and fire.attempt == 0 and fire.planned then
      found[#found + 1] = fire
    end
  end
  return found
end

-- Where the plan of a new or changed job starts: `stores.base.resume_at`.
local function resume_at(job, ended, planned)
  local reached = tonumber(redis.call("HGET", name("reached"), job))
  local since, first = math.max(wall, reached or wall), nil
  for _, fire in ipairs(planned) do
    local start = fire.first or fire.due
    if ended and fire.origin == "schedule" and start <= wall and start > (reached or -1) then
      first = math.min(start, first or start)
    end
  end
  if first then
    since = math.max(first - 1, reached or first - 1) -- instants are whole seconds
  end
  return math.min(since, ended or since)
end

local function revise(job, watermark, revision)
  if watermark and watermark.revision == revision then
    return
  end
  local gone = "gone/" .. job
  if not revision then
    redis.call("HDEL", name("marks"), job)
    local note = { text = exact(watermark.at), written = wall, expires = mono + RETURN_S }
    redis.call("HSET", name("notes"), gone, cmsgpack.pack(note))
  else
    local planned = unattempted(job)
    local ended = watermark and watermark.at or tonumber(note_of(redis.call("HGET", name("notes"), gone)) or nil)
    local since = resume_at(job, ended, planned)
    for _, fire in ipairs(planned) do
      if not ended or (fire.first or fire.due) > since then
        fires.forget(fire)
      end
    end
    set_watermark(job, { at = since, revision = revision })
    redis.call("HDEL", name("notes"), gone)
  end
  fires.bring_back(redis.call("ZRANGE", name("open", job), 0, -1))
end

local function is_in_force(watermarks, revisions)
  for job, watermark in pairs(watermarks) do
    if revisions[job] ~= watermark.revision then
      return false
    end
  end
  for job in pairs(revisions) do
    if not watermarks[job] then
      return false
    end
  end
  return true
end

local function look()
  return watermarks_of(all_watermarks())
end

local function set_jobs(asked)
  local watermarks = all_watermarks()
  if asked.seen == header.generation and not is_in_force(watermarks, asked.revisions) then
    for job, watermark in pairs(watermarks) do
      revise(job, watermark, asked.revisions[job])
    end
    for job, revision in pairs(asked.revisions) do
      if not watermarks[job] then
        revise(job, nil, revision)
      end
    end
    header.generation = header.generation + 1
    wake_nodes()
    watermarks = all_watermarks()
  end
  return watermarks_of(watermarks)
end

-- Does the plan start at or before the watermark, end after it, and need no span cut in two?
local function continues(plan, watermark)
  if plan.revision ~= watermark.revision or plan.since > watermark.at or plan["until"] <= watermark.at then
    return false
  end
  for _, span in ipairs(plan.spans) do
    if span <= watermark.at then
      return false
    end
  end
  return true
end

local function advance(plans)
  local watermarks = {}
  for _, plan in ipairs(plans) do
    local watermark = watermarks[plan.job] or fires.watermark_of(plan.job)
    watermarks[plan.job] = watermark or nil
    if watermark and continues(plan, watermark) then
      for _, planned in ipairs(plan.fires) do
        if planned.first > watermark.at then
          the_records().put(ARGV[planned.text], planned.due)
        end
      end
      watermarks[plan.job] = { at = plan["until"], revision = watermark.revision }
      set_watermark(plan.job, watermarks[plan.job])
      fires.bring_back(redis.call("ZRANGE", name("behind", "of " .. plan.job), 0, -1))
    end
  end
  return watermarks_of(watermarks)
end

-- A fire is four words: its key, its nominal instant, the number of its rules among those given (0: they are
-- in its text), its text.
local function put(asked)
  local fresh, keys, is_any, run_at = {}, {}, false, wall + asked.delay_s
  for place = FIRST_TEXT, #ARGV, 4 do
    keys[#keys + 1] = ARGV[place]
  end
  the_records().look_up(keys, fields("texts", keys))
  for place, key in ipairs(keys) do
    local at = FIRST_TEXT + 4 * (place - 1)
    local rules, text, is_fresh = asked.rules[tonumber(ARGV[at + 2])], ARGV[at + 3], nil
    if rules then
      is_fresh = the_records().put_light(key, tonumber(ARGV[at + 1]), rules, text, run_at)
    else
      is_fresh = the_records().put(text, run_at)
    end
    fresh[place], is_any = is_fresh and 1 or 0, is_any or is_fresh
  end
  if is_any then
    wake_nodes()
  end
  return true, fresh
end

verbs.look, verbs.set_jobs, verbs.advance, verbs.put = look, set_jobs, advance, put
