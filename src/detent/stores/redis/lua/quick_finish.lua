-- The fast path for plain reports of messages.  The rules are those of `settle`, but the packed state is changed
-- without a table for each message.

local function grown(lists, of)
  local list = lists[of]
  if not list then
    list = {}
    lists[of] = list
  end
  return list
end

local function end_quickly(queues, jobs, over, packs)
  call_with("HSET", KEPT, packs)
  call_with("ZADD", name("over"), over)
  for queue, keys in pairs(queues.taken) do
    call_with("ZREM", messages.box(queue).taken, keys)
  end
  for queue, dead in pairs(queues.dead) do
    call_with("ZADD", name("dead", queue), dead)
  end
  for job, done in pairs(jobs) do
    meet("jobs", job)
    call_with("ZADD", messages.index(job).done, done)
  end
  save_names()
end

-- Do all reports say nothing more than how it ended?
local function are_short(count)
  for place = FIRST_TEXT + 4, FIRST_TEXT + 5 * count - 1, 5 do
    if ARGV[place] ~= "" then
      return false
    end
  end
  return true
end

-- Settle what can be settled so.  Answers their answers, and the places of the others, which are known then.
local function settle_quickly(count)
  local keys, answers, others, latest = {}, {}, {}, {}
  for place = 1, count do
    keys[place] = ARGV[FIRST_TEXT + 5 * (place - 1)]
  end
  local kept, now, packs, over = fields("messages", keys), exact(wall), {}, {}
  local queues, jobs = { taken = {}, dead = {} }, {}
  for place = 1, count do
    local at, key, packed = FIRST_TEXT + 5 * (place - 1), keys[place], latest[keys[place]] or kept[place]
    local state, queue, job, due, run_at, attempt, claim_s, node, ask, fence, ttl, expires, ran_node, ran_fence,
      ran_at, _, _, attempts, unique_s, rare
    if packed then
      state, queue, job, due, run_at, attempt, claim_s, node, ask, fence, ttl, expires, ran_node, ran_fence,
        ran_at, _, _, attempts, unique_s, rare = cmsgpack.unpack(packed)
    end
    local is_ours = state == "claimed" and fence == tonumber(ARGV[at + 1])
    if is_ours and not rare and attempt > (attempts and #attempts or 0) then
      local outcome = ARGV[at + 2]
      attempts = attempts or {}
      attempts[#attempts + 1] = { attempt, ran_node, ran_fence, ran_at, wall, outcome, ARGV[at + 3] }
      packed = cmsgpack.pack(
        "over", queue, job, due, run_at, attempt, claim_s, node, ask, fence, ttl, expires, ran_node, ran_fence,
        ran_at, wall, outcome, attempts, unique_s, nil
      )
      latest[key], answers[place] = packed, 1
      local last, taken, done = #packs, grown(queues.taken, queue), grown(jobs, job)
      packs[last + 1], packs[last + 2], over[last + 1], over[last + 2] = key, packed, now, key
      taken[#taken + 1] = key
      last = #done
      done[last + 1], done[last + 2] = due, key
      if is_success(outcome) then
        succeeded[job] = true
      elseif is_dead(outcome) then
        local dead = grown(queues.dead, queue)
        last = #dead
        dead[last + 1], dead[last + 2] = due, key
      end
    else
      others[#others + 1] = place
      if packed then
        known(key, packed, "messages")
      end
    end
  end
  if #packs > 0 then
    end_quickly(queues, jobs, over, packs)
  end
  return answers, others
end
