-- How an app's jobs and their fires come to be recorded: one unbroken chain of plans for each job.

local RETURN_S = 3600 -- as in `stores.base`

local function chart(marks)
  local flat = {}
  for job, mark in pairs(marks) do
    flat[#flat + 1] = { job, exact(mark.at), mark.revision }
  end
  local left_s = world.calm_until - mono
  return { generation = world.generation, marks = flat, quarantined_until = left_s > 0 and exact(wall + left_s) or nil }
end

local function all_marks()
  local flat, marks = redis.call("HGETALL", name("marks")), {}
  for place = 1, #flat, 2 do
    marks[flat[place]] = cmsgpack.unpack(flat[place + 1])
  end
  return marks
end

local function set_mark(job, mark)
  redis.call("HSET", name("marks"), job, cmsgpack.pack(mark))
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

local function revise(job, mark, revision)
  if mark and mark.revision == revision then
    return
  end
  local gone = "gone/" .. job
  if not revision then
    redis.call("HDEL", name("marks"), job)
    local note = { text = exact(mark.at), written = wall, expires = mono + RETURN_S }
    redis.call("HSET", name("notes"), gone, cmsgpack.pack(note))
  else
    local planned = unattempted(job)
    local ended = mark and mark.at or tonumber(note_of(redis.call("HGET", name("notes"), gone)) or nil)
    local since = resume_at(job, ended, planned)
    for _, fire in ipairs(planned) do
      if not ended or (fire.first or fire.due) > since then
        fires.forget(fire)
      end
    end
    set_mark(job, { at = since, revision = revision })
    redis.call("HDEL", name("notes"), gone)
  end
  fires.bring_back(redis.call("ZRANGE", name("open", job), 0, -1))
end

local function is_in_force(marks, revisions)
  for job, mark in pairs(marks) do
    if revisions[job] ~= mark.revision then
      return false
    end
  end
  for job in pairs(revisions) do
    if not marks[job] then
      return false
    end
  end
  return true
end

local function look()
  return chart(all_marks())
end

local function set_jobs(asked)
  local marks = all_marks()
  if asked.seen == world.generation and not is_in_force(marks, asked.revisions) then
    for job, mark in pairs(marks) do
      revise(job, mark, asked.revisions[job])
    end
    for job, revision in pairs(asked.revisions) do
      if not marks[job] then
        revise(job, nil, revision)
      end
    end
    world.generation = world.generation + 1
    ring()
    marks = all_marks()
  end
  return chart(marks)
end

-- Does the plan start at or before the mark, end after it, and need no span cut in two?
local function continues(plan, mark)
  if plan.revision ~= mark.revision or plan.since > mark.at or plan["until"] <= mark.at then
    return false
  end
  for _, span in ipairs(plan.spans) do
    if span <= mark.at then
      return false
    end
  end
  return true
end

local function advance(plans)
  local marks = {}
  for _, plan in ipairs(plans) do
    local mark = marks[plan.job] or fires.mark_of(plan.job)
    marks[plan.job] = mark or nil
    if mark and continues(plan, mark) then
      for _, planned in ipairs(plan.fires) do
        if planned.first > mark.at then
          the_records().put(ARGV[planned.text], planned.due)
        end
      end
      marks[plan.job] = { at = plan["until"], revision = mark.revision }
      set_mark(plan.job, marks[plan.job])
      fires.bring_back(redis.call("ZRANGE", name("behind", "of " .. plan.job), 0, -1))
    end
  end
  return chart(marks)
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
    ring()
  end
  return true, fresh
end

verbs.look, verbs.set_jobs, verbs.advance, verbs.put = look, set_jobs, advance, put
