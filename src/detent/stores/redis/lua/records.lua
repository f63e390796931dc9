-- Records fires, each key once.

local records = {}

-- Learn at once which of these keys nobody has, from the texts that were found.
function records.look_up(keys, found)
  for place, text in ipairs(found) do
    absent[keys[place]] = not text or nil
  end
end

-- Is the key free?  One that is over may have to give way.
local function is_free(key, unique_s)
  if not cache[key] and (absent[key] or redis.call("HEXISTS", name("texts"), key) == 0) then
    return true
  end
  local old = unique_s and fires.get(key)
  local gives_way = old and old.state == "over" and (not is_success(old.outcome) or old.due + unique_s <= wall)
  if gives_way then
    fires.forget(old)
    fires.save()
  end
  return gives_way
end

-- A message without a lane.
function records.put_light(key, due, rules, text, run_at)
  if not is_free(key, rules.unique_s) then
    return false
  end
  local fire = messages.made(key, due, rules, run_at)
  cache[key], texts[key] = fire, text
  meet("mailboxes", rules.queue)
  meet("tasks", rules.job)
  fires.touch(fire)
  return true
end

function records.put(text, run_at)
  local given = cjson.decode(text)
  local key, fire = given.key, given.rules
  fire.job, fire.queue = given.job, given.queue
  if fire.is_light then
    return records.put_light(key, given.due, fire, text, run_at)
  elseif not is_free(key, fire.unique_s) then
    return false
  end
  lengthen(fire.claim_s)
  header.recorded = header.recorded + 1
  fire.key, fire.id, fire.state, fire.run_at, fire.attempt = key, header.recorded, "pending", run_at, 0
  fire.due, fire.origin, fire.start_by, fire.first = given.due, given.origin, given.start_by, given.first
  fire.is_apart = fire.origin == "push" or nil
  if fire.is_apart then
    meet("mailboxes", fire.queue)
    meet("tasks", fire.job)
  else
    meet("queues", fire.queue)
  end
  cache[key], texts[key] = fire, text
  dirty[key] = { fire = fire, was = {} }
  return true
end

