-- All claims of a node instance, for a repeated ask or a dead instance.  Both are rare, so this part is set up late.

local instances = {}

-- The claims of a life, of all its asks.
local function claimed_by(life)
  local theirs = fires.fetch(redis.call("ZRANGE", name("life", life), 0, -1))
  for _, queue in ipairs(redis.call("SMEMBERS", name("mailboxes"))) do
    for _, fire in ipairs(fires.fetch(redis.call("ZRANGE", messages.box(queue).taken, 0, -1), "messages")) do
      if fire.is_light and fire.node == life then
        theirs[#theirs + 1] = fire
      end
    end
  end
  return theirs
end

-- These instances are proven dead: their claims are over now.
function instances.declare_dead(dead)
  for _, life in ipairs(dead) do
    for _, fire in ipairs(claimed_by(life)) do
      if fires.is_live(fire) then
        fires.touch(fire).expires = mono
        look_again()
        wake_nodes()
      end
    end
  end
  fires.save()
end

-- What is claimed under an ask that is repeated, renewed.
function instances.granted_before(ask)
  local granted = {}
  for _, fire in ipairs(claimed_by(ask.node)) do
    if fire.ask == ask.number and fires.is_live(fire) then
      fires.touch(fire)
      fire.expires, fire.doubted = mono + fire.ttl, nil
      granted[#granted + 1] = fire
    end
  end
  fires.save()
  return granted
end
