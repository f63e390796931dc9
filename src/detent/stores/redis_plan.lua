-- How an app's jobs and their fires come to be recorded: one unbroken chain of plans for each job.

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

-- Forget what is planned after that instant: nobody can have claimed it.
local function take_back(job, since)
  local planned = redis.call("ZRANGEBYSCORE", name("open", job), "(" .. exact(since), "+inf")
  for _, fire in ipairs(fires.fetch(planned)) do
    local is_untouched = fire.state == "pending" and fire.attempt == 0
    if is_untouched and fire.planned and (fire.first or fire.due) > since then
      fires.forget(fire)
    end
  end
end

local function revise(job, mark, revision)
  if mark and mark.revision == revision then
    return
  end
  -- The clock may have been set back.
  local since = math.max(wall, tonumber(redis.call("HGET", name("reached"), job)) or wall)
  if mark then
    since = math.min(mark.at, since)
    take_back(job, since)
    fires.bring_back(redis.call("ZRANGE", name("open", job), 0, -1))
  end
  if revision then
    set_mark(job, { at = since, revision = revision })
  else
    redis.call("HDEL", name("marks"), job)
  end
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

local function adopt(asked)
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
  local found = fields("texts", keys)
  if #keys > 0 and put_quickly(keys, found, asked, run_at) then
    ring()
    for place = 1, #keys do
      fresh[place] = 1
    end
    return true, fresh
  end
  the_records().look_up(keys, found)
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

verbs.look, verbs.adopt, verbs.advance, verbs.put = look, adopt, advance, put
