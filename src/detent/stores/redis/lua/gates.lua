-- Whether one more fire may start: `rules/rates.py` and `rules/breakers.py` in Lua.  Most queues have neither, so
-- this part is set up at its first use in a call.
--
-- charges:NAME    charges of a name, by instant (mono)
-- charged         these names, by when they may be forgotten

local START_S, MARGIN_S, PROBING_S, BACKEND = 0.25, 0.75, 1, "failed backend: "
local LOOK_BACK_S, CHARGES_MAX = 3600, 10000 -- another rate may look back further; so many are enough for any
local gates, trimmed, circuits = {}, nil, nil

each_call(function() trimmed, circuits = {}, {} end)

local function span_of(rate)
  return rate.window_s + math.min(MARGIN_S, START_S + rate.window_s / 10)
end

local function newest(index, place)
  return tonumber(redis.call("ZREVRANGE", index, place, place, "WITHSCORES")[2])
end

-- How many were charged in the window, and how long until one more may be.
function gates.usage(charged_as, rate)
  local index, free_at = name("charges", charged_as), mono
  local used = redis.call("ZCOUNT", index, "(" .. exact(mono - span_of(rate)), "+inf")
  if used >= rate.most then
    free_at = newest(index, rate.most - 1) + span_of(rate)
  end
  if rate.smooth and used > 0 then
    free_at = math.max(free_at, newest(index, 0) + rate.window_s / rate.most)
  end
  return used, math.max(0, free_at - mono)
end

function gates.charge(charged_as, rate, member)
  local index, keep_s = name("charges", charged_as), math.max(span_of(rate), LOOK_BACK_S)
  redis.call("ZADD", index, mono, member)
  if not trimmed[index] then
    trimmed[index] = true
    redis.call("ZREMRANGEBYSCORE", index, "-inf", mono - keep_s)
    redis.call("ZREMRANGEBYRANK", index, 0, -1 - math.max(CHARGES_MAX, rate.most))
    redis.call("ZADD", name("charged"), mono + keep_s, charged_as)
  end
end

local function charged_as(fire, rate)
  local base = string.match(fire.queue, "^[^^]*")
  return rate.by_key and base .. "/" .. (fire.rate_key or "") or base
end

local function circuit_of(breaker)
  if not circuits[breaker] then
    local text = note_of(redis.call("HGET", name("notes"), "breaker/" .. breaker))
    local told = text and cjson.decode(text) or {}
    circuits[breaker] = {
      errors = told.errors or 0, opened = told.opened or 0, fence = told.fence or 0, probe = told.probe or "",
    }
  end
  return circuits[breaker]
end

local function keep(breaker, circuit)
  circuits[breaker] = circuit
  if circuit.errors == 0 and circuit.opened == 0 and circuit.fence == 0 then
    redis.call("HDEL", name("notes"), "breaker/" .. breaker)
    return
  end
  local text = string.format(
    '{"errors":%d,"opened":%s,"fence":%.0f,"probe":%s}',
    circuit.errors, exact(circuit.opened), circuit.fence, cjson.encode(circuit.probe)
  )
  redis.call("HSET", name("notes"), "breaker/" .. breaker, cmsgpack.pack({ text = text, written = wall }))
end

local function cools_s(fire)
  local circuit = circuit_of(fire.breaker)
  if circuit.opened == 0 then
    return 0
  end
  local probe = circuit.fence ~= 0 and fires.get(circuit.probe)
  if probe and probe.fence == circuit.fence and fires.is_live(probe) then
    return PROBING_S
  end
  return math.min(math.max(0, circuit.opened + fire.cooldown - wall), fire.cooldown)
end

-- How long to put off a fire; 0: it may begin.
function gates.wait_s(fire, rate)
  local waits = 0
  if rate and rate.by_key then
    local _, free_in_s = gates.usage(charged_as(fire, rate), rate)
    waits = free_in_s
  end
  return fire.breaker and math.max(waits, cools_s(fire)) or waits
end

-- It begins under its new claim.
function gates.enter(fire, rate)
  if rate then
    gates.charge(charged_as(fire, rate), rate, string.format("%.0f", fire.fence))
  end
  local circuit = fire.breaker and circuit_of(fire.breaker)
  if circuit and circuit.opened ~= 0 then
    local errors, opened = circuit.errors, circuit.opened
    keep(fire.breaker, { errors = errors, opened = opened, fence = fire.fence, probe = fire.key })
  end
end

-- The attempt that was granted last ended so.
function gates.leave(fire, outcome)
  local circuit = circuit_of(fire.breaker)
  local is_error = string.sub(outcome, 1, #BACKEND) == BACKEND
  if circuit.opened ~= 0 and circuit.fence ~= (fire.ran_fence or 0) then
    return
  elseif is_success(outcome) then
    if circuit.errors ~= 0 or circuit.opened ~= 0 then
      keep(fire.breaker, { errors = 0, opened = 0, fence = 0, probe = "" })
    end
  elseif not is_error then
    if circuit.fence ~= 0 then
      keep(fire.breaker, { errors = circuit.errors, opened = circuit.opened, fence = 0, probe = "" })
    end
  else
    local errors = circuit.errors + 1
    local opens = circuit.opened ~= 0 or errors >= fire.threshold
    keep(fire.breaker, { errors = errors, opened = opens and wall or 0, fence = 0, probe = "" })
  end
end
