-- Grants plain messages that were never claimed, if there is nothing else to decide about; otherwise it returns only the
-- header, and `engine/claiming.py` decides.  The request: node and number of the ask; its ttl, or 0 for each record's
-- own; how many; its queues; commands that must reply with nothing; indexes of what is due, or expires, later.

-- A line of a record that was never claimed: first id of its commit; `run_at`; ttl; job; id.
local FRESH = "^%S+ %S+ (%S+) p  (%S+) %S+ 0%.0 (%S+)  %S+ (%S+) p 0 %d %d %[(%-?%d+),0,0,0,\"\",0,\"\",0,0%.0%]$"

-- For each queue its keys, and for each key its text and what its line keeps.  Nothing if one needs a decision.
local function find(queues, most)
  local pages = {}
  for _, queue in ipairs(queues) do
    local keys = call("ZRANGEBYSCORE", prefix .. "due:p:" .. queue, "-inf", exact(wall), "LIMIT", 0, most)
    local words, page = records_of(keys, RECORD), { queue = queue, keys = keys }
    for place = 1, #keys do
      local first_id, run_at, ttl, job, id = string.match(words[2 * place - 1] or "", FRESH)
      if not first_id then
        return nil
      end
      id = tonumber(id) > 0 and id or exact(first_id - id)
      page[place] = { text = words[2 * place], run_at = run_at, ttl = ttl, job = job, id = id }
    end
    pages[#pages + 1], most = page, most - #keys
  end
  return pages
end

local function take(node, number, ttl, most, queues, nothing, by_look_at, by_expiry)
  local may = steady >= header.quarantined_until and number > last_ask(node) and #keys_of(nothing) == 0
  local pages = may and find(queues, most)
  if not pages then
    return { leave() }
  end
  local count = 0
  for _, page in ipairs(pages) do
    count = count + #page
  end
  local stamp, fence = begin_commit(count)
  local name, now, given = cjson.encode(node), exact(wall), ttl > 0 and exact(ttl)
  local texts, facts, succeeded, place = {}, {}, {}, 0
  for _, page in ipairs(pages) do
    local lines, scores = {}, {}
    for at, one in ipairs(page) do
      local key, job, lasts = page.keys[at], one.job, given or one.ttl
      local expires = exact(steady + lasts)
      place = place + 1
      lines[2 * at - 1], scores[2 * at - 1], scores[2 * at] = key, expires, key
      lines[2 * at] = table.concat({
        stamp, "c  ", one.run_at, " ", one.run_at, " ", expires, " ", lasts, "  ", page.queue, " ", job, " p 0 0 0 [",
        one.id, ",1,0,-", place, ",", name, ",", number, ",", name, ",-", place, ",", now, "]",
      })
      texts[place], facts[place] = one.text, one.run_at .. " " .. one.id
      if succeeded[job] == nil then
        succeeded[job] = call("ZSCORE", prefix .. "succeeded", job)
      end
      header.longest = math.max(header.longest, lasts)
    end
    if #page > 0 then
      call("HSET", prefix .. "states", unpack(lines))
      call("ZREM", prefix .. "due:p:" .. page.queue, unpack(page.keys))
      call("ZADD", prefix .. "taken:" .. page.queue, unpack(scores))
    end
  end
  keep_ask(node, number)
  local times = {}
  for job, at in pairs(succeeded) do
    times[#times + 1] = { job, at }
  end
  return { leave(), exact(fence), next_times(by_look_at, by_expiry), times, facts, texts }
end

return arrive() and take(unpack(cjson.decode(ARGV[REQUEST]))) or {}
