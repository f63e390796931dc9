-- Grants plain messages that were never claimed, if there is nothing else to decide about; otherwise it returns only the
-- header, and `engine/claiming.py` decides.  The request: node and number of the ask; its ttl, or 0 for each record's
-- own; how many; its queues; commands that must reply with nothing; indexes of what is due, or expires, later.

-- A line of a record that was never claimed: first id of its commit; `run_at`; ttl; job; id.
local FRESH = "^%S+ %S+ (%S+) p  (%S+) %S+ 0%.0 (%S+)  %S+ (%S+) p 0 %d %d %[(%-?%d+),0,0,0,\"\",0,\"\",0,0%.0%]$"

-- For each message its key, queue, text, and what its line keeps.  Nothing if one needs a decision.
local function find(queues, most)
  local found = {}
  for _, queue in ipairs(queues) do
    local from, index = #found, prefix .. "due:p:" .. queue
    local keys = call("ZRANGEBYSCORE", index, "-inf", exact(wall), "LIMIT", 0, most - from)
    local words = records_of(keys)
    for place, key in ipairs(keys) do
      local one = { key, queue, words[2 * place], string.match(words[2 * place - 1] or "", FRESH) }
      if not one[4] then
        return nil
      end
      found[from + place] = one
    end
  end
  return found
end

local function take(node, number, ttl, most, queues, nothing, by_look_at, by_expiry)
  local may = steady >= header.quarantined_until and number > last_ask(node) and #keys_of(nothing) == 0
  local found = may and find(queues, most)
  if not found then
    return { leave() }
  end
  local stamp, name, now = begin_commit(#found), cjson.encode(node), exact(wall)
  local keys, scores, lines, words, times, succeeded = {}, {}, {}, {}, {}, {}
  for _, queue in ipairs(queues) do
    keys[queue], scores[queue] = {}, {}
  end
  for place, one in ipairs(found) do
    local key, queue, text, first_id, run_at, given, job, id = unpack(one)
    local lasts = ttl > 0 and exact(ttl) or given
    local expires = exact(steady + lasts)
    local line = table.concat({
      stamp, "c  ", run_at, " ", run_at, " ", expires, " ", lasts, "  ", queue, " ", job, " p 0 0 0 [",
      tonumber(id) > 0 and id or exact(first_id - id), ",1,0,-", place, ",", name, ",", number, ",", name, ",-", place,
      ",", now, "]",
    })
    lines[2 * place - 1], lines[2 * place] = key, line
    words[2 * place - 1], words[2 * place] = line, text
    append(keys[queue], { key })
    append(scores[queue], { expires, key })
    if times[job] == nil then
      times[job] = call("ZSCORE", prefix .. "succeeded", job)
    end
    succeeded[place] = times[job]
    header.longest = math.max(header.longest, lasts)
  end
  if #found > 0 then
    call("HSET", prefix .. "states", unpack(lines))
  end
  for queue, some in pairs(keys) do
    if #some > 0 then
      call("ZREM", prefix .. "due:p:" .. queue, unpack(some))
      call("ZADD", prefix .. "taken:" .. queue, unpack(scores[queue]))
    end
  end
  keep_ask(node, number)
  return { leave(), reads.next(by_look_at, by_expiry), succeeded, words }
end

return arrive() and take(unpack(cjson.decode(ARGV[REQUEST]))) or {}
