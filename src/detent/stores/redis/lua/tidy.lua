-- Deletes what nothing refers to any more.  One call tidies one page of a hash, or with no name all small things.

local PAGE = 500

local function exists(...)
  local keys = { ... }
  for place, key in ipairs(keys) do
    keys[place] = prefix .. key
  end
  return call("EXISTS", unpack(keys)) > 0
end

-- Whether all instants of a list of {instant, …} have passed.
local function are_past(list, now)
  for _, one in ipairs(list) do
    if one[1] > now then
      return false
    end
  end
  return true
end

local is_spent = {
  ["cells:lane"] = function(lane, text)
    local is_free = are_past(text ~= "" and cjson.decode(text) or {}, steady) and not exists("held:" .. lane, "waits:" .. lane, "rivals:" .. lane)
    if is_free then
      call("DEL", prefix .. "parks:" .. lane)
    end
    return is_free
  end,
  ["cells:charge"] = function(_, text)
    if text == "" then
      return true
    end
    local lasts_s, charges = unpack(cjson.decode(text))
    return are_past(charges, steady - lasts_s)
  end,
}

local function is_silent(job, at, asked)
  return tonumber(at) < wall - asked.jobs_s and call("HEXISTS", prefix .. "jobs", job) == 0 and not exists("book:" .. job)
end

local function tidy_page(asked)
  local hash = prefix .. asked.hash
  local page, spent = call("HSCAN", hash, asked.cursor, "COUNT", PAGE), is_spent[asked.hash]
  for place = 1, #page[2], 2 do
    local field, value = page[2][place], page[2][place + 1]
    local is_gone
    if spent then
      is_gone = spent(field, string.match(value, "^%d+ (.*)$") or "", asked)
    else
      is_gone = is_silent(field, value, asked)
    end
    if is_gone then
      call("HDEL", hash, field)
    end
  end
  return page[1]
end

local function tidy_set(set, ...)
  for _, member in ipairs(call("SMEMBERS", prefix .. set)) do
    local keys = { ... }
    for place, kind in ipairs(keys) do
      keys[place] = kind .. ":" .. member
    end
    if not exists(unpack(keys)) then
      call("SREM", prefix .. set, member)
    end
  end
end

local function tidy_hash(hash, is_over)
  local all = call("HGETALL", prefix .. hash)
  for place = 1, #all, 2 do
    if is_over(all[place + 1]) then
      call("HDEL", prefix .. hash, all[place])
    end
  end
end

local function tidy_rest(asked)
  tidy_hash("asks", function(value)
    return tonumber(string.match(value, " (%S+)$")) <= steady - asked.asks_s
  end)
  tidy_hash("hands", function(value)
    return tonumber(string.match(value, "^%S+")) <= wall
  end)
  for _, hash in ipairs(call("SMEMBERS", prefix .. "kinds")) do
    tidy_hash(hash, function(value)
      local ends = cjson.decode(string.match(value, "^%d+ (.*)$"))[3]
      return type(ends) == "number" and ends <= steady
    end)
    if not exists(hash) then
      call("SREM", prefix .. "kinds", hash)
    end
  end
  tidy_set("queues", "due:p", "due:j", "due:h", "live", "taken", "dead")
  tidy_set("tasks", "book")
  tidy_set("past", "done")
  return "0"
end

local function answer()
  if not arrive() then
    return {}
  end
  local asked = cjson.decode(ARGV[REQUEST])
  local cursor = asked.hash == "" and tidy_rest(asked) or asked.hash ~= "" and tidy_page(asked)
  is_changed = false -- a full server would refuse the header
  return { leave(), cursor }
end
