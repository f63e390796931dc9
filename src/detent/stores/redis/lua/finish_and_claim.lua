-- Reports and an ask in one: what is over is settled first, and what that lets in may be granted.

function verbs.finish_and_claim(asked)
  local _, answers = verbs.finish(asked)
  local soonest, told = verbs.claim(asked.ask)
  for place = 1, #told do
    answers[asked.count + place] = told[place]
  end
  return soonest, answers
end
