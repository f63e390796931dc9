-- The end of every script: the verb that the call names, and its answer.

local asked = cjson.decode(ARGV[3])
if ARGV[1] == "find" then -- it changes nothing, and needs no clock
  local answer, texts = verbs.find(asked)
  table.insert(texts, 1, cjson.encode(answer))
  return texts
end
local step, moved, leapt = arrive()
if step ~= 0 then
  fires.move_waits(step)
  if leapt > 0 then
    fires.prolong(leapt)
  end
elseif moved > 0 then
  fires.doubt(moved)
end
fires.save()
local answer, texts = verbs[ARGV[1]](asked)
fires.save()
save_world()
if is_ringing then
  redis.call("XADD", name("bell"), "MAXLEN", 1, "*", "rang", 1)
end
local told = {
  now = exact(wall), mono = exact(mono), era = world.era, longest = exact(world.longest), answer = answer,
}
texts = texts or {}
table.insert(texts, 1, cjson.encode(told))
return texts
