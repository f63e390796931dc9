-- Messages: fires that were pushed.  They are many and end soon, so they are in few indexes.  Versions without rates
-- and breakers must not find them, so these indexes have other names.
--
-- messages        key -> the packed state of a message without a lane; one with a lane is in `states`
-- ready:QUEUE     by when it is due (again), of messages that wait only for room, a rate or a breaker
-- waiting:QUEUE   the same, of the others; apart:QUEUE the parked ones (`parked.lua`)
-- taken:QUEUE     by when the claim expires (mono)
-- book:JOB        all messages of a job by nominal instant; dead:QUEUE the dead letters
-- mailboxes, tasks  the queues and jobs that have messages

local RARE = { -- what most do not have
  "start_by", "start_text", "rate_key", "breaker", "threshold", "cooldown", "sentence", "stop", "verdict",
  "again", "uncounted", "doubted",
}

local CHUNK = 500 -- Lua passes no more than some thousand values at once
local messages, boxes, indexes, KEPT = {}, {}, {}, nil

each_call(function()
  if is_elsewhere then
    boxes, indexes, KEPT = {}, {}, name("messages")
  end
end)

function messages.box(queue)
  local box = boxes[queue]
  if not box then
    box = { ready = name("ready", queue), waiting = name("waiting", queue), taken = name("taken", queue) }
    boxes[queue] = box
  end
  return box
end

function messages.index(job)
  local index = indexes[job]
  if not index then
    index = { book = name("book", job), done = name("done", job) }
    indexes[job] = index
  end
  return index
end

function messages.unpack(key, packed)
  local state, queue, job, due, run_at, attempt, claim_s, node, ask, fence, ttl, expires, ran_node, ran_fence,
    ran_at, over_at, outcome, attempts, unique_s, rare = cmsgpack.unpack(packed)
  local fire = {
    key = key, is_light = true, origin = "push", state = state, queue = queue, job = job, due = due,
    run_at = run_at, attempt = attempt, claim_s = claim_s, node = node, ask = ask, fence = fence, ttl = ttl,
    expires = expires, ran_node = ran_node, ran_fence = ran_fence, ran_at = ran_at, over_at = over_at,
    outcome = outcome, attempts = attempts, unique_s = unique_s, rare = rare,
  }
  if rare then
    for field, value in pairs(rare) do
      fire[field] = value
    end
  end
  return fire
end

-- What a newer version keeps with it stays.
local function rare_of(fire)
  local rare = fire.rare
  local is_plain = not (fire.sentence or fire.stop or fire.verdict or fire.again or fire.uncounted or fire.doubted)
  if is_plain and not rare then
    return nil
  end
  for place = 1, #RARE do
    local field = RARE[place]
    local value = fire[field]
    if value ~= nil then
      rare = rare or {}
      rare[field] = value
    elseif rare then
      rare[field] = nil
    end
  end
  return rare
end

function messages.pack(fire)
  return cmsgpack.pack(
    fire.state, fire.queue, fire.job, fire.due, fire.run_at, fire.attempt, fire.claim_s, fire.node, fire.ask,
    fire.fence, fire.ttl, fire.expires, fire.ran_node, fire.ran_fence, fire.ran_at, fire.over_at, fire.outcome,
    fire.attempts, fire.unique_s, rare_of(fire)
  )
end

-- It stands in one index at a time.
function messages.place(fire)
  if fire.state == "pending" then
    local box = messages.box(fire.queue)
    return (fire.start_by or fire.sentence) and box.waiting or box.ready, fire.run_at
  elseif fire.state == "claimed" then
    return messages.box(fire.queue).taken, fire.expires
  end
  return name("over"), fire.over_at
end

function messages.made(key, due, rules, run_at)
  lengthen(rules.claim_s)
  local fire = {
    key = key, is_light = true, is_new = true, origin = "push", state = "pending", queue = rules.queue,
    job = rules.job, due = due, run_at = run_at, attempt = 0, claim_s = rules.claim_s,
    unique_s = rules.unique_s,
  }
  if rules.rare then
    fire.rare = {}
    for field, value in pairs(rules.rare) do
      fire[field] = value
    end
  end
  return fire
end

-- What is written: at once where one fire changed, and else together for each key, as a call of the server costs
-- more than what it does here.
local COMMANDS = { "HDEL", "HSET", "ZREM", "ZADD" } -- in this order
local batches -- command -> key -> values; nil: at once

local function write(command, key, one, other)
  if not batches then
    if other then
      redis.call(command, key, one, other)
    else
      redis.call(command, key, one)
    end
    return
  end
  local values = batches[command][key]
  if not values then
    batches[command][key] = other and { one, other } or { one }
    return
  end
  local last = #values
  values[last + 1] = one
  if other then
    values[last + 2] = other
  end
end

-- One command with many values.
local function call_with(command, key, values)
  if #values <= 4 then
    redis.call(command, key, unpack(values))
    return
  end
  for first = 1, #values, CHUNK do
    redis.call(command, key, unpack(values, first, math.min(first + CHUNK - 1, #values)))
  end
end

local function begin_batches()
  batches = { HDEL = {}, HSET = {}, ZREM = {}, ZADD = {} }
end

local function end_batches()
  local together = batches
  batches = nil
  for _, command in ipairs(together and COMMANDS or {}) do
    for key, values in pairs(together[command]) do
      call_with(command, key, values)
    end
  end
end

each_call(function() batches = nil end)

local function remove(fire)
  local index = messages.index(fire.job)
  write("HDEL", KEPT, fire.key)
  write("ZREM", index.book, fire.key)
  write("ZREM", index.done, fire.key)
  write("ZREM", name("dead", fire.queue), fire.key)
  if fire.was then
    write("ZREM", fire.was, fire.key)
  end
end

-- Writes one that changed.
function messages.write(fire)
  local key = fire.key
  if fire.is_forgotten then
    return remove(fire)
  end
  local index, score = messages.place(fire)
  if fire.state == "pending" and (fire.run_at > wall or index ~= messages.box(fire.queue).ready) then
    look_again()
  end
  write("HSET", KEPT, key, messages.pack(fire))
  if index ~= fire.was then
    if fire.was then
      write("ZREM", fire.was, key)
    end
    write("ZADD", index, score, key)
  elseif score ~= fire.was_score then
    write("ZADD", index, score, key)
  end
  if fire.is_new then
    write("ZADD", messages.index(fire.job).book, fire.due, key)
  end
  if fire.state == "over" and fire.was_state ~= "over" then
    write("ZADD", messages.index(fire.job).done, fire.due, key)
    if is_dead(fire.outcome) then
      write("ZADD", name("dead", fire.queue), fire.due, key)
    end
  end
  fire.is_dirty, fire.is_new, fire.was = nil, nil, nil
end

-- The values of many fields of a hash; false where there is none.
local function fields(hash, wanted)
  if #wanted <= CHUNK then
    return #wanted > 0 and redis.call("HMGET", name(hash), unpack(wanted)) or {}
  end
  local values = {}
  for first = 1, #wanted, CHUNK do
    local last = math.min(first + CHUNK - 1, #wanted)
    for _, value in ipairs(redis.call("HMGET", name(hash), unpack(wanted, first, last))) do
      values[#values + 1] = value
    end
  end
  return values
end
