-- Moves retries and delays after a step of the server's clock.  That is rare, so this part is set up late.

local steps = {}

-- All that are pending, or claimed and expire after that reading of `mono`.
local function each_waiting(visit)
  local all = { queues = { "pending", "plain", "aside" }, mailboxes = { "waiting", "ready", "apart" } }
  for set, kinds in pairs(all) do
    for _, queue in ipairs(redis.call("SMEMBERS", name(set))) do
      for _, kind in ipairs(kinds) do
        for _, fire in ipairs(fires.fetch(redis.call("ZRANGE", name(kind, queue), 0, -1))) do
          visit(fire)
        end
      end
    end
  end
end

local function each_claimed(after, visit)
  for set, kind in pairs({ queues = "claimed", mailboxes = "taken" }) do
    for _, queue in ipairs(redis.call("SMEMBERS", name(set))) do
      local live = redis.call("ZRANGEBYSCORE", name(kind, queue), "(" .. exact(after), "+inf")
      for _, fire in ipairs(fires.fetch(live)) do
        visit(fire)
      end
    end
  end
end

-- The clock was set: retries and delays move along, they are durations; instants of a schedule do not.  What is
-- late by now has to be judged again.
function steps.move_waits(step)
  each_waiting(function(fire)
    if fire.aside then
      fires.touch(fire).aside = nil
    end
    if fire.origin ~= "schedule" or fire.run_at ~= fire.due then
      fires.touch(fire).run_at = fire.run_at + step
    end
  end)
end

-- Calls that were held up, as by a server that stood still, told of too little time: `mono` fell behind, and
-- now leaps ahead.  Claims that were granted or renewed meanwhile must not lose what it leaps over.
function steps.prolong(leapt)
  each_claimed(mono - leapt, function(fire)
    fires.touch(fire).expires = math.min(fire.expires + leapt, mono + fire.ttl)
  end)
end

-- The clock moved, and nobody knows whether it was set: work that may go on gets a fresh ttl, once.
function steps.doubt(moved)
  each_claimed(mono - moved, function(fire)
    if moved > fire.ttl / 2 and not fire.doubted then
      fires.touch(fire)
      fire.expires, fire.doubted = mono + fire.ttl, true
    end
  end)
end
