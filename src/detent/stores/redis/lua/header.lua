-- The start of every script: the header of the app, its clocks and its epoch.
--
-- KEYS[1] is the app's header ("world").  All keys of the app have the same prefix, and so are in one slot.  ARGV has
-- eight words of what the client knows, then the request.
--
-- `wall` is the server's clock and decides what is due.  `steady` decides what has expired: it is the wall clock minus
-- all steps that were noticed (`ahead`).  A client sends the last `steady` that it got, and how long ago that was by a
-- clock that is never set, at least (since the reply) and at most (since the request).  If the wall clock has moved by
-- more or less than that, it was set (`steps.lua`).

local SCHEMA = 5
local STEP_S = 0.5 -- less is the network, or drift; rules/trust.py
local TOUCH_S = 0.25 -- the time of the last call is written no more often than this
local ORPHANS_TTL_S = 30 -- of claims of which even that was forgotten
local SINCE_2020_S, FENCE_STEP = 1577836800, 4194304 -- 2^22
local REQUEST = 9 -- the place of the request among the arguments
local CHUNK = 4000 -- arguments of one command

local call, prefix = redis.call, string.sub(KEYS[1], 1, -6)
local wall, steady, header, is_changed, wakes_nodes

local function exact(number)
  return string.format("%.17g", number)
end

local function read_header()
  local text = call("GET", KEYS[1])
  local is_read, found = pcall(cmsgpack.unpack, text or "")
  if text and not (is_read and type(found) == "table" and found.schema == SCHEMA) then
    error("DETENT-SCHEMA")
  end
  header = text and found
end

local function leap(fence)
  return math.max(fence + FENCE_STEP, math.floor(wall - SINCE_2020_S) * FENCE_STEP)
end

local function begin_epoch(replid)
  header.replid, header.began, is_changed = replid, steady, true
  header.epoch = string.sub(replid, 1, 12) .. "-" .. string.format("%.0f", wall * 1000000)
end

-- What the store remembers may be old: fences leap, and no claim is granted before all old ones have expired.
local function new_epoch(replid)
  begin_epoch(replid)
  local least = header.fence > 0 and 0 or ORPHANS_TTL_S
  header.fence = header.fence > 0 and leap(header.fence) or 0
  header.quarantined_until = steady + math.max(header.longest, least)
end

-- A client that knew an older epoch may still trust a claim that this one has forgotten.
local function heed_older_epoch()
  local longest = tonumber(ARGV[5])
  header.longest, is_changed = math.max(header.longest, longest), true
  header.quarantined_until = math.max(header.quarantined_until, header.began + (longest > 0 and longest or ORPHANS_TTL_S))
end

-- The words of the header for the client.  Writes the header if it has changed, and wakes the nodes.
local function leave()
  if is_changed then
    call("SET", KEYS[1], cmsgpack.pack(header))
  end
  if wakes_nodes then
    call("XADD", prefix .. "wakeups", "MAXLEN", "~", 1, "*", "at", exact(wall))
  end
  return table.concat({
    exact(wall), exact(steady), header.epoch, exact(header.quarantined_until), header.generation, header.controls,
    exact(header.longest), exact(header.version),
  }, " ")
end
