-- Reads one state of the store.  The request is a JSON list: how many members that wait come with a lane; the reads.
-- Each read has a reply, in order.
--
-- A read of due records takes them into hand: for `HAND_S` it moves them in their index, so that no other look finds
-- them.  Their lanes are taken into hand by their names.  The reply also has what decisions about them depend on:
-- their jobs and the members of their lanes.

local HAND_S = 1
local READ_MAX = 800 -- due records that one read passes over, because their lanes are in the hands of others
local LANE_QUEUE_JOB = "^" .. string.rep("%S* ", LANE - 1) .. "(%S*) (%S*) (%S*)"

local jobs, lanes = {}, {} -- of the due records that were shown: lists without duplicates

local function add_once(list, name)
  if not list[name] then
    list[name], list[#list + 1] = true, name
  end
end

-- Adds keys to `found` until there are `most`.  With a token, only those whose lane is in no other hand.
local function add_free(found, keys, most, token)
  if token == "" or #keys == 0 then
    return append(found, keys)
  end
  local names, hands = {}, {}
  for place, line in ipairs(call("HMGET", prefix .. "states", unpack(keys))) do
    names[place] = string.match(line or "", LANE_QUEUE_JOB) or ""
  end
  for place, hand in ipairs(call("HMGET", prefix .. "hands", unpack(names))) do
    local till, whose = string.match(hand or "", "^(%S+) (.*)$")
    if (not till or whose == token or tonumber(till) <= wall) and #found < most then
      found[#found + 1] = keys[place]
      if names[place] ~= "" then
        append(hands, { names[place], exact(wall + HAND_S) .. " " .. token })
      end
    end
  end
  if #hands > 0 then
    call("HSET", prefix .. "hands", unpack(hands))
  end
end

-- `token`: "" if the records have no lanes.  To start after a place: its score and key.
function reads.due(name, most, token, at, key)
  local index, found, passed, some = prefix .. name, {}, 0, nil
  repeat
    some = call("ZRANGEBYSCORE", index, at and exact(at) or "-inf", exact(wall), "LIMIT", passed, most)
    passed = passed + most
    local is_last = #some < most
    while at and #some > 0 and some[1] <= key and tonumber(call("ZSCORE", index, some[1])) == at do
      table.remove(some, 1)
    end
    add_free(found, some, most, token)
  until token == "" or #found >= most or is_last or passed >= READ_MAX
  if steady >= header.quarantined_until and #found > 0 then
    local words, till = {}, exact(wall + HAND_S)
    for place, one in ipairs(found) do
      words[2 * place - 1], words[2 * place] = till, one
    end
    call("ZADD", index, "XX", unpack(words)) -- an ask reads a thousand at most
  end
  local words, last = records_of(found), "\n"
  for place = 1, #words, 2 do
    if not string.find(words[place], last, 1, true) then -- most follow one of the same job
      local lane, queue, job = string.match(words[place], LANE_QUEUE_JOB)
      last = table.concat({ "", lane, queue, job, "" }, " ")
      add_once(jobs, job)
      if lane ~= "" then
        add_once(lanes, lane)
      end
    end
  end
  return words
end

-- There is no index of nodes: only a repeated ask, or the end of a node, needs one.
function reads.asked(node, number)
  local keys = {}
  for _, queue in ipairs(number <= last_ask(node) and call("SMEMBERS", prefix .. "queues") or {}) do
    append(keys, call("ZRANGE", prefix .. "live:" .. queue, 0, -1))
    append(keys, call("ZRANGE", prefix .. "taken:" .. queue, 0, -1))
  end
  return records_of(keys)
end

-- Each hash, its fields and values.  `hash`: "" for all hashes of notes.
function reads.notes(hash)
  local out = {}
  for place, name in ipairs(hash == "" and call("SMEMBERS", prefix .. "kinds") or { hash }) do
    out[place] = { name, call("HGETALL", prefix .. name) }
  end
  return out
end

-- A list for each lane.
function reads.lanes(names, rivals, parked, waiting)
  local out = {}
  for place, lane in ipairs(names) do
    local keys = call("ZRANGE", prefix .. "held:" .. lane, 0, -1)
    append(keys, call("ZRANGE", prefix .. "waits:" .. lane, 0, waiting - 1))
    if rivals > 0 then
      append(keys, call("ZREVRANGEBYSCORE", prefix .. "rivals:" .. lane, exact(wall), "-inf", "LIMIT", 0, rivals))
    end
    for _, queue in ipairs(parked > 0 and call("SMEMBERS", prefix .. "parks:" .. lane) or {}) do
      append(keys, call("ZRANGE", prefix .. "parked:" .. lane .. "|" .. queue, 0, parked - 1))
    end
    out[place] = records_of(keys)
  end
  return out
end

-- For each job its text, when it succeeded and was reached, its newest instant that is due.
function reads.jobs(names)
  local out = {}
  for place, job in ipairs(names) do
    local newest = call("ZREVRANGEBYSCORE", prefix .. "instants:" .. job, exact(wall), "-inf", "WITHSCORES", "LIMIT", 0, 1)
    out[place] = {
      call("HGET", prefix .. "jobs", job), call("ZSCORE", prefix .. "succeeded", job),
      call("ZSCORE", prefix .. "reached", job), newest[2] or false,
    }
  end
  return out
end

if not arrive() then
  return {}
end
local waiting, request = unpack(cjson.decode(ARGV[REQUEST]))
local replies = answer(request, { "" })
local cells = #lanes > 0 and call("HMGET", prefix .. "cells:lane", unpack(lanes)) or {}
replies[#replies + 1] = { jobs, reads.jobs(jobs), lanes, cells, reads.lanes(lanes, 0, 0, waiting) }
replies[1] = leave()
return replies
