-- Reads one state of the store.  The request is a JSON list of reads; each has a reply, in order.
--
-- A read of due records takes them into hand: for `HAND_S` it moves them in their index, so that no other look finds
-- them.  Their lanes are taken into hand by their names.  The reply also has what decisions about them depend on:
-- their jobs and the members of their lanes.

local HAND_S = 1
local READ_MAX = 800 -- due records that one read passes over, because their lanes are in the hands of others

local reads = {}
local places -- of the due records that were shown

local function score_or(bound, default)
  return bound ~= cjson.null and exact(bound) or default
end

-- Keys after this position in an index: the first ones may have the same score.
local function after(keys, scored, at, key)
  local out = {}
  for place = 1, #keys, 2 do
    if not scored or tonumber(keys[place + 1]) > at or keys[place] > key then
      out[#out + 1] = keys[place]
    end
  end
  return out
end

local function take(index, keys)
  local words, till = {}, exact(wall + HAND_S)
  for place = 1, #keys do
    words[2 * place - 1], words[2 * place] = till, keys[place]
  end
  each_part(#keys, function(from, to)
    call("ZADD", index, "XX", unpack(words, 2 * from - 1, 2 * to))
  end)
end

-- Of these records, those whose lane is in no other hand.
local function with_free_lanes(lines, keys, token, most, into)
  local lanes, hands = {}, {}
  for place = 1, #keys do
    local lane = lines[place] and string.match(lines[place], "^%S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ ([^|]*)|")
    lanes[place] = lane or ""
  end
  local taken = call("HMGET", prefix .. "hands", unpack(lanes))
  for place = 1, #keys do
    local till, whose = string.match(taken[place] or "", "^(%S+) (.*)$")
    if lines[place] and (not till or whose == token or tonumber(till) <= wall) and #into < most then
      into[#into + 1] = keys[place]
      if lanes[place] ~= "" then
        hands[#hands + 1], hands[#hands + 2] = lanes[place], exact(wall + HAND_S) .. " " .. token
      end
    end
  end
  if #hands > 0 then
    call("HSET", prefix .. "hands", unpack(hands))
  end
end

-- What is shown is not found again: it was moved in the index.
local function laned_due(index, first, at, key, most, token)
  local found, passed = {}, 0
  while #found < most and passed < READ_MAX do
    local some = call("ZRANGEBYSCORE", index, first, exact(wall), "WITHSCORES", "LIMIT", passed, most)
    local keys = after(some, at, at, key)
    if #keys > 0 then
      with_free_lanes(call("HMGET", prefix .. "states", unpack(keys)), keys, token, most, found)
    end
    passed = passed + most
    if #some < 2 * most then
      break
    end
  end
  return found
end

-- due, index, most, after: look_at and key or null, token or null if its records have no lanes
function reads.due(r)
  local index, most, at, key, token = prefix .. r[2], r[3], r[4], r[5], r[6]
  local first, found = score_or(at, "-inf"), nil
  at = at ~= cjson.null and at or nil
  if token ~= cjson.null then
    found = laned_due(index, first, at, key, most, token)
  elseif at then
    found = after(call("ZRANGEBYSCORE", index, first, exact(wall), "WITHSCORES", "LIMIT", 0, most), at, at, key)
  else
    found = call("ZRANGEBYSCORE", index, first, exact(wall), "LIMIT", 0, most)
  end
  if steady >= header.calm then
    take(index, found)
  end
  local words, last = records_of(found), ""
  for place = 1, #words, 2 do
    if not string.find(words[place], last, 1, true) or last == "" then
      local named = string.match(words[place], "^%S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%S+)")
      places[#places + 1], last = named, " " .. named .. " "
    end
  end
  return words
end

-- expired, indexes, most
function reads.expired(r)
  local keys = {}
  for _, index in ipairs(r[2]) do
    for _, key in ipairs(call("ZRANGEBYSCORE", prefix .. index, "-inf", exact(steady), "LIMIT", 0, r[3])) do
      keys[#keys + 1] = key
    end
  end
  return records_of(keys)
end

-- asked, node, number or null.  There is no index of nodes: only a repeated ask, or the end of a node, needs one.
function reads.asked(r)
  local last = tonumber(string.match(call("HGET", prefix .. "asks", r[2]) or "0", "^%S+"))
  local keys = {}
  if r[3] ~= cjson.null and r[3] > last then
    return keys
  end
  for _, queue in ipairs(call("SMEMBERS", prefix .. "queues")) do
    for _, kind in ipairs({ "live:", "taken:" }) do
      for _, key in ipairs(call("ZRANGE", prefix .. kind .. queue, 0, -1)) do
        keys[#keys + 1] = key
      end
    end
  end
  return records_of(keys)
end

-- fires, keys
function reads.fires(r)
  return records_of(r[2])
end

-- lanes, names, rivals, parked.  Replies with a list for each lane.
function reads.lanes(r)
  local out = {}
  for place, lane in ipairs(r[2]) do
    local keys = call("ZRANGE", prefix .. "held:" .. lane, 0, -1)
    keys[#keys + 1] = call("ZRANGE", prefix .. "waits:" .. lane, 0, 0)[1]
    if r[3] > 0 then
      local rivals = call("ZREVRANGEBYSCORE", prefix .. "rivals:" .. lane, exact(wall), "-inf", "LIMIT", 0, r[3])
      for _, key in ipairs(rivals) do
        keys[#keys + 1] = key
      end
    end
    for _, queue in ipairs(r[4] > 0 and call("SMEMBERS", prefix .. "parks:" .. lane) or {}) do
      for _, key in ipairs(call("ZRANGE", prefix .. "parked:" .. lane .. "|" .. queue, 0, r[4] - 1)) do
        keys[#keys + 1] = key
      end
    end
    out[place] = records_of(keys)
  end
  return out
end

-- jobs, names, as parts of keys.  Replies for each: job, when it succeeded and was reached, its newest instant that is due.
function reads.jobs(r)
  local out, names = {}, r[2]
  for place, job in ipairs(names) do
    local newest = call("ZREVRANGEBYSCORE", prefix .. "instants:" .. job, exact(wall), "-inf", "WITHSCORES", "LIMIT", 0, 1)
    out[place] = {
      call("HGET", prefix .. "jobs", job), call("HGET", prefix .. "succeeded", job),
      call("HGET", prefix .. "reached", job), newest[2] or false,
    }
  end
  return out
end

-- The jobs of the app, and when jobs succeeded, each with names and values.
function reads.all_jobs()
  return { call("HGETALL", prefix .. "jobs"), call("HGETALL", prefix .. "succeeded") }
end

-- planned, jobs
function reads.planned(r)
  local keys = {}
  for _, job in ipairs(r[2]) do
    for _, kind in ipairs({ "instants:", "extras:" }) do
      for _, key in ipairs(call("ZRANGE", prefix .. kind .. job, 0, -1)) do
        keys[#keys + 1] = key
      end
    end
  end
  return records_of(keys)
end

-- cells, hash and field of each
function reads.cells(r)
  local out = {}
  for place = 1, #r[2], 2 do
    out[#out + 1] = call("HGET", prefix .. r[2][place], r[2][place + 1])
  end
  return out
end

-- under, hash; without one all hashes of notes.  Replies with a list of hashes, each with fields and values.
function reads.under(r)
  local out = {}
  for _, hash in ipairs(r[2] ~= "" and { r[2] } or call("SMEMBERS", prefix .. "kinds")) do
    out[#out + 1] = { hash, call("HGETALL", prefix .. hash) }
  end
  return out
end

-- last_ask, node
function reads.last_ask(r)
  return call("HGET", prefix .. "asks", r[2])
end

local function first_after(indexes, now)
  local first
  for _, index in ipairs(indexes) do
    local found = call("ZRANGEBYSCORE", prefix .. index, "(" .. exact(now), "+inf", "WITHSCORES", "LIMIT", 0, 1)[2]
    if found and (not first or tonumber(found) < tonumber(first)) then
      first = found
    end
  end
  return first or false
end

-- next, indexes by `look_at`, indexes by expiry
function reads.next(r)
  return { first_after(r[2], wall), first_after(r[3], steady) }
end

-- What decisions about the shown records depend on: for each job its facts, for each lane its cell and members.
local function references()
  local jobs, lanes, seen = {}, {}, {}
  for _, place in ipairs(places) do
    local lane, job = string.match(place, "^([^|]*)|[^|]*|(.*)$")
    if not seen["j" .. job] then
      seen["j" .. job], jobs[#jobs + 1] = true, job
    end
    if lane ~= "" and not seen["l" .. lane] then
      seen["l" .. lane], lanes[#lanes + 1] = true, lane
    end
  end
  local cells = #lanes > 0 and call("HMGET", prefix .. "cells:lane", unpack(lanes)) or {}
  return { jobs, reads.jobs({ "", jobs }), lanes, cells, reads.lanes({ "", lanes, 0, 0 }) }
end

local function answer()
  if not arrive() then
    return {}
  end
  places = {}
  local replies = { "" }
  for place, read in ipairs(cjson.decode(ARGV[REQUEST])) do
    replies[place + 1] = reads[read[1]](read)
  end
  if #places > 0 then
    replies[#replies + 1] = references()
  end
  replies[1] = leave()
  return replies
end
