-- Charges by hand, deletes messages by key, and counts the messages of queues.

local function charge(asked)
  local gates = the_gates()
  local used, free_in_s = gates.usage(asked.name, asked.rate)
  if asked.count > 0 and free_in_s == 0 then
    header.recorded = header.recorded + 1
    gates.charge(asked.name, asked.rate, string.format("by hand %.0f", header.recorded))
    used = used + 1
  end
  return { used = used, free_in_s = exact(free_in_s) }
end

local function reset(asked)
  redis.call("DEL", name("charges", asked.name))
  redis.call("ZREM", name("charged"), asked.name)
  wake_nodes()
  return true
end

local function forget(asked)
  local gone = 0
  for _, fire in ipairs(fires.fetch(asked.keys, "messages")) do
    if fire.state == "over" and fire.origin ~= "schedule" and not fire.is_forgotten then
      fires.forget(fire)
      gone = gone + 1
    end
  end
  return gone
end

-- What messages the queues have: due, delayed, running, dead.
local function count(asked)
  local found, now = {}, exact(wall)
  for _, queue in ipairs(#asked.queues > 0 and asked.queues or redis.call("SMEMBERS", name("mailboxes"))) do
    local box, due, waiting = messages.box(queue), 0, 0
    for _, index in ipairs({ box.ready, box.waiting, name("apart", queue) }) do
      due = due + redis.call("ZCOUNT", index, "-inf", now)
      waiting = waiting + redis.call("ZCARD", index)
    end
    local running, dead = redis.call("ZCARD", box.taken), redis.call("ZCARD", name("dead", queue))
    found[queue] = { due, waiting - due, running, dead }
  end
  return found
end

verbs.charge, verbs.reset, verbs.forget, verbs.count = charge, reset, forget, count
