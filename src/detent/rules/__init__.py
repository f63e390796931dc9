"""The policy of a fire, as pure functions: lanes, planning, settling, chains, rates, breakers, trust."""
