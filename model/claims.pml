/* How detent claims, renews, fences and recovers: all that a few nodes and one store can do, in any order.
 *
 * Every option of a `do` below is one step that the world may take next.  Nodes do what they can before time
 * passes, in any order, unless there is trouble: a node is stopped for any length of time between two of its
 * steps, or killed; an answer is lost; a request arrives after its sender has given it up; the store fails
 * over and forgets.  Each trouble comes at any moment, and so often at most as it is counted here.
 *
 * Time is a set of timers that count down: until a claim expires, until its holder stops trusting it, until
 * a store that may have forgotten grants again.  Work whose trust is used up is killed, and dies before the
 * next tick: that is the warden's business, and no trouble of its node keeps it from it.
 *
 * What must hold stands as `assert` where it could break.  And every run must come to an end (that there is
 * no cycle is checked as well), with every fire settled.
 *
 * `-D` with one of these removes a safeguard, and each of them must be found:
 *   NO_FENCE            an older claim renews and finishes too
 *   RENEW_AFTER_EXPIRY  a claim that has expired may be renewed
 *   ASK_NOT_NUMBERED    an ask that is repeated, or comes late, is an ask like any other
 *   NO_KEY              an instant that was settled may be recorded again
 *   NO_LANE             a grant looks at its own fire only
 *   NO_SENTENCE         nobody is granted what another lost
 *   NO_TRUST_MARGIN     work is killed when its claim expires, not a margin before
 *   TRUST_FROM_ANSWER   trust counts from the answer, not from when the request was sent
 *   CHECK_THEN_START    the node compares and then starts; the warden does not compare
 *   NO_WARDEN           a node kills its own work, unless it is stopped itself
 *   NO_CALM             a store of a new era grants at once
 *   COUNTER_FENCE       a store of a new era goes on counting from what it remembers
 *   NO_FIRE_VERSION     a commit does not compare the version of the fire that it grants
 *   NO_LANE_VERSION     a commit does not compare the version of the lane
 *
 * An ask is two steps, look and commit: between them others act, and its node may be stopped or killed.  A
 * renewal and a report are one step, since they depend on their own record only, whose version and life the
 * commit compares.
 */

#ifndef NODES
#define NODES 3
#endif
#define FIRES 2 /* two instants of one job, in one lane of width 1 */
#ifndef ATTEMPTS
#define ATTEMPTS 1 /* 1: `on_lost: skip`, 2: `on_lost: rerun` */
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef FAILOVERS
#define FAILOVERS 1
#endif
#ifndef LOSSES
#define LOSSES 1 /* answers that are lost, and requests that come late */
#endif
#define TTL 2
#define LEAP 16 /* more than all grants of an era */
#define NOBODY NODES

#ifdef NO_TRUST_MARGIN
#define TRUST TTL
#else
#define TRUST (TTL - 1)
#endif

/* What has become of a fire, in the store. */
#define ABSENT 0
#define PENDING 1
#define CLAIMED 2
#define OVER 3

/* What a node does.  It has room for one claim. */
#define IDLE 0
#define ANSWERED 1   /* its ask was carried out; the answer is on the way */
#define UNANSWERED 2 /* it will ask again, under the same number */
#define HELD 3
#define CHECKED 4 /* only if CHECK_THEN_START */
#define RUNNING 5 /* work is alive */
#define ENDED 6   /* there is a verdict to report */
#define LOOKED 7  /* its ask was decided, by what it saw, and not committed */

/* Verdicts. */
#define DONE 0
#define LOST 1
#define UNUSED 2

/* The answer to a renewal, on the way; and a request that comes late. */
#define NONE 0
#define GRANTED 1
#define REFUSED 2
#define AN_ASK 1
#define A_RENEWAL 2
#define A_REPORT 3

typedef Fire {
  unsigned state : 2;
  unsigned holder : 2;
  unsigned fence : 5;
  unsigned left : 2; /* until the claim expires */
  unsigned attempt : 2;
  unsigned sentence : 1; /* granted to be settled, not to be run */
  unsigned newest : 1    /* claimed under the newest ask of its holder */
};

typedef Node {
  unsigned phase : 3;
  unsigned fire : 1;
  unsigned fence : 5;
  unsigned sentence : 1;
  unsigned attempt : 2;
  unsigned trust : 2; /* counts from when the request was sent */
  unsigned verdict : 2;
  unsigned lost : 1; /* the store said that it is no longer ours */
  unsigned renewal : 2;
  unsigned renewed : 2;  /* the trust that this renewal brings */
  unsigned renewals : 1; /* work that goes on is renewed once */
  unsigned paused : 1;
  unsigned has_asked : 1;
  unsigned looked : 2; /* the fire that its ask will be granted, + 1 */
  unsigned looked_sentence : 1;
  unsigned fire_changed : 1; /* since the look */
  unsigned lane_changed : 1;
  unsigned is_old : 1 /* a tick or a failover came since the look */
};

/* The store. */
Fire fire[FIRES];
unsigned counter : 5; /* the newest fence */
unsigned served : 4;  /* nodes whose newest ask was carried out */
unsigned calm : 2;

Node node[NODES];
unsigned pauses : 2, crashes : 2, failovers : 2, losses : 2;
bit has_forgotten;

/* Work whose node was killed: the warden has it. */
bit orphan;
unsigned orphan_trust : 2;

/* The request that comes late. */
unsigned ghost : 2, ghost_node : 2, ghost_fire : 1, ghost_fence : 5, ghost_verdict : 2;
bit ghost_is_older; /* an ask: its node has asked anew since */
bit ghost_is_new;   /* and the store has forgotten that */

/* What a sceptic remembers: which attempts were launched, and the greatest fence of them. */
unsigned launched_0 : 3, launched_1 : 3, top : 5;

/* An inline takes no part of a structure. */
hidden byte which, whose, verdict;

#define BIT(n) (1 << (n))
#define OTHER(f) (1 - (f))
#define IS_LIVE(f) (fire[f].state == CLAIMED && fire[f].left > 0)
#define RUNS(f) (IS_LIVE(f) && !fire[f].sentence)
#ifdef NO_LANE
#define HAS_ROOM(f) true
#else
#define HAS_ROOM(f) (!RUNS(OTHER(f)))
#endif
#define MAY_RUN(f) (fire[f].state == PENDING && HAS_ROOM(f))
#ifdef NO_SENTENCE
#define HAS_EXPIRED(f) false
#else
#define HAS_EXPIRED(f) (fire[f].state == CLAIMED && fire[f].left == 0)
#endif
#define THERE_IS_WORK (calm == 0 && (MAY_RUN(0) || MAY_RUN(1) || HAS_EXPIRED(0) || HAS_EXPIRED(1)))
#define WORKS(n) (node[n].phase == RUNNING)
#define AWAKE(n) (!node[n].paused)
#if NODES > 2
#define ANY(test) (test(0) || test(1) || test(2))
#else
#define ANY(test) (test(0) || test(1))
#endif

/* ---- The store: each of these is one atomic call. ---- */

#define KEEPS_LANE (!(RUNS(0) && RUNS(1)))

/* A new version of a fire, or of the lane: those who looked before notice. */
#define CHANGE_FIRE_OF(m, f) node[m].fire_changed = node[m].fire_changed | (node[m].looked == f + 1)
#define CHANGE_LANE_OF(m) node[m].lane_changed = node[m].lane_changed | (node[m].looked > 0)
#define GROW_OLD(m) node[m].is_old = node[m].is_old | (node[m].phase == LOOKED)
#if NODES > 2
#define CHANGE_FIRE(f) CHANGE_FIRE_OF(0, f); CHANGE_FIRE_OF(1, f); CHANGE_FIRE_OF(2, f)
#define CHANGE_LANE CHANGE_LANE_OF(0); CHANGE_LANE_OF(1); CHANGE_LANE_OF(2)
#define ALL_GROW_OLD GROW_OLD(0); GROW_OLD(1); GROW_OLD(2)
#else
#define CHANGE_FIRE(f) CHANGE_FIRE_OF(0, f); CHANGE_FIRE_OF(1, f)
#define CHANGE_LANE CHANGE_LANE_OF(0); CHANGE_LANE_OF(1)
#define ALL_GROW_OLD GROW_OLD(0); GROW_OLD(1)
#endif

inline grant(f, n, is_sentence, is_newest) {
  assert(fire[f].state != OVER); /* what is settled is not granted again */
  counter++;
  assert(counter != LEAP); /* else the bound is too low to tell */
  fire[f].state = CLAIMED;
  fire[f].holder = n;
  fire[f].fence = counter;
  fire[f].left = TTL;
  fire[f].sentence = is_sentence;
  fire[f].newest = is_newest;
  fire[f].attempt = fire[f].attempt + 1 - is_sentence;
  CHANGE_FIRE(f);
  CHANGE_LANE;
  assert(KEEPS_LANE) /* a lane has no more live claims to run than its width */
}

inline grant_one(n, is_newest) {
  if
  :: MAY_RUN(0) -> grant(0, n, 0, is_newest)
  :: MAY_RUN(1) -> grant(1, n, 0, is_newest)
  :: HAS_EXPIRED(0) -> grant(0, n, 1, is_newest)
  :: HAS_EXPIRED(1) -> grant(1, n, 1, is_newest)
  :: else
  fi
}

#define IS_GRANTED(f, n) (IS_LIVE(f) && fire[f].holder == n && fire[f].newest)

#ifdef ASK_NOT_NUMBERED
#define IS_NEW_ASK(n) (calm == 0)
#else
#define IS_NEW_ASK(n) (calm == 0 && !(served & BIT(n)))
#endif

inline renew_granted(n) {
  if
  :: IS_GRANTED(0, n) -> fire[0].left = TTL; CHANGE_FIRE(0)
  :: else
  fi;
  if
  :: IS_GRANTED(1, n) -> fire[1].left = TTL; CHANGE_FIRE(1)
  :: else
  fi
}

/* Carry out the newest ask of a node at once: once; after that its grants are only renewed. */
inline serve(n) {
  if
  :: IS_NEW_ASK(n) -> served = served | BIT(n); grant_one(n, 1)
  :: else
  fi;
  renew_granted(n)
}

/* Look, and decide. */
inline look(n) {
  node[n].fire_changed = 0; node[n].lane_changed = 0; node[n].is_old = 0;
  node[n].looked = 0; node[n].looked_sentence = 0;
  if
  :: IS_NEW_ASK(n) ->
    if
    :: MAY_RUN(0) -> node[n].looked = 1
    :: MAY_RUN(1) -> node[n].looked = 2
    :: HAS_EXPIRED(0) -> node[n].looked = 1; node[n].looked_sentence = 1
    :: HAS_EXPIRED(1) -> node[n].looked = 2; node[n].looked_sentence = 1
    :: else
    fi
  :: else
  fi
}

#ifdef NO_FIRE_VERSION
#define FIRE_CHANGED(n) false
#else
#define FIRE_CHANGED(n) node[n].fire_changed
#endif
#ifdef NO_LANE_VERSION
#define LANE_CHANGED(n) false
#else
#define LANE_CHANGED(n) node[n].lane_changed
#endif

/* Commit what was decided.  What has changed since is not granted; the number is used all the same. */
inline commit(n) {
  if
  :: IS_NEW_ASK(n) ->
    served = served | BIT(n);
    if
    :: node[n].looked && !FIRE_CHANGED(n) && !LANE_CHANGED(n) ->
      which = node[n].looked - 1; verdict = node[n].looked_sentence;
      grant(which, n, verdict, 1)
    :: else
    fi
  :: else
  fi;
  renew_granted(n)
}

#ifdef NO_FENCE
#define IS_NEWEST(f, by) true
#else
#define IS_NEWEST(f, by) (fire[f].fence == by)
#endif
#ifdef RENEW_AFTER_EXPIRY
#define MAY_RENEW(f, by) (fire[f].state == CLAIMED && IS_NEWEST(f, by))
#else
#define MAY_RENEW(f, by) (IS_LIVE(f) && IS_NEWEST(f, by))
#endif

/* Only the newest claim settles; that it has expired is no matter.  Who and under which fence is kept. */
inline finish(f, by, how) {
  if
  :: fire[f].state == CLAIMED && IS_NEWEST(f, by) ->
    CHANGE_FIRE(f);
    if
    :: !fire[f].sentence -> CHANGE_LANE
    :: else
    fi;
    fire[f].left = 0;
    fire[f].newest = 0;
    if
    :: how == DONE || (how == LOST && fire[f].attempt >= ATTEMPTS) -> fire[f].state = OVER
    :: else ->
      fire[f].state = PENDING;
      fire[f].attempt = fire[f].attempt - (how == UNUSED && !fire[f].sentence);
      fire[f].fence = 0;
      fire[f].holder = 0
    fi;
    fire[f].sentence = 0
  :: else
  fi
}

/* ---- A node. ---- */

inline be_idle(n) {
  node[n].phase = IDLE; node[n].fire = 0; node[n].fence = 0; node[n].sentence = 0; node[n].attempt = 0;
  node[n].trust = 0; node[n].verdict = 0; node[n].lost = 0; node[n].renewal = NONE; node[n].renewed = 0;
  node[n].renewals = 0; node[n].looked = 0; node[n].looked_sentence = 0;
  node[n].fire_changed = 0; node[n].lane_changed = 0; node[n].is_old = 0
}

inline take(f, n) {
  node[n].fire = f; node[n].fence = fire[f].fence;
  node[n].sentence = fire[f].sentence; node[n].attempt = fire[f].attempt
}

/* Ask, under the number of last time or a new one. */
inline ask(n) {
  be_idle(n);
  node[n].phase = LOOKED;
  node[n].trust = TRUST;
  look(n)
}

inline be_answered(n) {
  commit(n);
  node[n].looked = 0; node[n].looked_sentence = 0; node[n].fire_changed = 0; node[n].lane_changed = 0;
  node[n].phase = ANSWERED;
  if
  :: IS_GRANTED(0, n) -> take(0, n)
  :: else ->
    if
    :: IS_GRANTED(1, n) -> take(1, n)
    :: else
    fi
  fi
}

inline number_anew(n) {
  served = served & (15 - BIT(n));
  node[n].has_asked = 1;
  if
  :: fire[0].holder == n -> fire[0].newest = 0
  :: else
  fi;
  if
  :: fire[1].holder == n -> fire[1].newest = 0
  :: else
  fi;
  if
  :: ghost == AN_ASK && ghost_node == n -> ghost_is_older = 1
  :: else
  fi
}

inline end_work(n, how) {
  node[n].phase = ENDED; node[n].verdict = how;
  node[n].trust = 0; node[n].lost = 0; node[n].sentence = 0; node[n].attempt = 0;
  node[n].renewal = NONE; node[n].renewed = 0; node[n].renewals = 0
}

inline launch(n) {
  assert(!orphan && !ANY(WORKS)); /* no two of a lane are alive together */
  assert(node[n].fence > top);    /* fences grow, from launch to launch */
  top = node[n].fence;
  if /* an attempt is launched once, unless the store has forgotten it */
  :: node[n].fire == 0 ->
    assert(has_forgotten || !(launched_0 & BIT(node[n].attempt)));
    launched_0 = launched_0 | BIT(node[n].attempt)
  :: else ->
    assert(has_forgotten || !(launched_1 & BIT(node[n].attempt)));
    launched_1 = launched_1 | BIT(node[n].attempt)
  fi;
  node[n].phase = RUNNING
}

inline become_late(kind, n) {
  losses++;
  ghost = kind; ghost_node = n; ghost_is_older = 0;
  ghost_fire = node[n].fire; ghost_fence = node[n].fence; ghost_verdict = node[n].verdict
}

inline forget_ghost() {
  ghost = NONE; ghost_node = 0; ghost_fire = 0; ghost_fence = 0; ghost_verdict = 0;
  ghost_is_older = 0; ghost_is_new = 0
}

#ifdef TRUST_FROM_ANSWER
#define TRUSTED(since_sent) TRUST
#else
#define TRUSTED(since_sent) (since_sent)
#endif

#define MAY_FAIL (losses < LOSSES)
#define MAY_BE_LATE (MAY_FAIL && ghost == NONE)
#define MAY_ASK(n) (node[n].phase == IDLE && THERE_IS_WORK)
/* Nodes are alike: let the first to ask be the first. */
#define IS_MY_TURN(n) (n == 0 || node[n - 1].has_asked)
/* Work that goes on is renewed when some of its trust is used up, also by a node that has not started it. */
#define WANTS_RENEWAL(n)                                                                     \
  ((WORKS(n) || node[n].phase == HELD) && node[n].trust < TRUST && !node[n].renewals && \
   node[n].renewal == NONE && !node[n].lost)

inline report(n) {
  which = node[n].fire; whose = node[n].fence; verdict = node[n].verdict;
  finish(which, whose, verdict)
}

proctype Life(byte n) {
  end:
  do
  /* Claiming.  A call that fails is repeated under the same number. */
  :: atomic { AWAKE(n) && MAY_ASK(n) && IS_MY_TURN(n) -> number_anew(n); ask(n) }
  :: atomic { AWAKE(n) && MAY_ASK(n) && IS_MY_TURN(n) && MAY_BE_LATE ->
      number_anew(n); become_late(AN_ASK, n); node[n].phase = UNANSWERED }
  :: atomic { AWAKE(n) && node[n].phase == ANSWERED && MAY_FAIL ->
      losses++; be_idle(n); node[n].phase = UNANSWERED }
  :: atomic { AWAKE(n) && node[n].phase == UNANSWERED -> ask(n) }
  :: atomic { AWAKE(n) && node[n].phase == LOOKED ->
      if
      :: node[n].is_old -> look(n)
      :: else -> be_answered(n)
      fi }
  :: atomic { AWAKE(n) && node[n].phase == ANSWERED ->
      if
      :: node[n].fence -> node[n].phase = HELD; node[n].trust = TRUSTED(node[n].trust)
      :: else -> be_idle(n)
      fi }

  /* Starting: whoever starts the work compares. */
  :: atomic { AWAKE(n) && node[n].phase == HELD ->
      if
      :: node[n].sentence || node[n].lost -> end_work(n, LOST)
      :: !node[n].sentence && !node[n].lost && node[n].trust == 0 -> end_work(n, UNUSED)
#ifdef CHECK_THEN_START
      :: !node[n].sentence && !node[n].lost && node[n].trust > 0 -> node[n].phase = CHECKED
#else
      :: !node[n].sentence && !node[n].lost && node[n].trust > 0 -> launch(n)
#endif
      fi }
#ifdef CHECK_THEN_START
  :: atomic { AWAKE(n) && node[n].phase == CHECKED -> launch(n) }
#endif

  /* The work ends, also while its node is stopped; or it is ended. */
  :: atomic { WORKS(n) && node[n].trust > 0 && !node[n].lost -> end_work(n, DONE) }
  :: atomic { AWAKE(n) && WORKS(n) && node[n].lost -> end_work(n, LOST) }
#ifdef NO_WARDEN
  :: atomic { AWAKE(n) && WORKS(n) && node[n].trust == 0 -> end_work(n, LOST) }
#else
  :: atomic { WORKS(n) && node[n].trust == 0 -> end_work(n, LOST) }
#endif

  /* Renewing. */
  :: atomic { AWAKE(n) && WANTS_RENEWAL(n) ->
      node[n].renewals = 1;
      if
      :: MAY_RENEW(node[n].fire, node[n].fence) ->
        fire[node[n].fire].left = TTL;
        CHANGE_FIRE(node[n].fire);
        node[n].renewal = GRANTED;
        node[n].renewed = TRUST;
        assert(KEEPS_LANE)
      :: else -> node[n].renewal = REFUSED
      fi }
  :: atomic { AWAKE(n) && WANTS_RENEWAL(n) && MAY_BE_LATE -> become_late(A_RENEWAL, n) }
  :: atomic { AWAKE(n) && node[n].renewal == GRANTED ->
      node[n].trust = TRUSTED(node[n].renewed); node[n].renewal = NONE; node[n].renewed = 0 }
  :: atomic { AWAKE(n) && node[n].renewal == REFUSED -> node[n].lost = 1; node[n].renewal = NONE }
  :: atomic { AWAKE(n) && node[n].renewal != NONE && MAY_FAIL ->
      losses++; node[n].renewal = NONE; node[n].renewed = 0 }

  /* Settling: repeated until it is answered. */
  :: atomic { AWAKE(n) && node[n].phase == ENDED -> report(n); be_idle(n) }
  :: atomic { AWAKE(n) && node[n].phase == ENDED && MAY_FAIL -> losses++; report(n) }
  :: atomic { AWAKE(n) && node[n].phase == ENDED && MAY_BE_LATE -> become_late(A_REPORT, n) }

  /* Stopped, for as long as anything goes on elsewhere; and killed: what starts again is another life. */
  :: atomic { AWAKE(n) && pauses < PAUSES && node[n].phase != IDLE -> pauses++; node[n].paused = 1 }
  :: atomic { node[n].paused -> node[n].paused = 0 }
#if CRASHES > 0
  :: atomic { crashes < CRASHES && node[n].phase != IDLE ->
      crashes++;
      if
      :: WORKS(n) -> orphan = 1; orphan_trust = node[n].trust
      :: else
      fi;
      number_anew(n);
      if
      :: fire[0].holder == n -> fire[0].holder = NOBODY
      :: else
      fi;
      if
      :: fire[1].holder == n -> fire[1].holder = NOBODY
      :: else
      fi;
      if
      :: ghost == AN_ASK && ghost_node == n -> forget_ghost()
      :: else
      fi;
      be_idle(n);
      node[n].paused = 0 }
#endif
  od
}

/* ---- The rest of the world. ---- */

#define PASS(timer) timer = timer - (timer > 0)

#ifdef NO_WARDEN
#define IS_OVERDUE(n) (WORKS(n) && node[n].trust == 0 && AWAKE(n))
#else
#define IS_OVERDUE(n) (WORKS(n) && node[n].trust == 0)
#endif
#define IS_BUSY(n)                                                                                     \
  (AWAKE(n) && (node[n].phase == ANSWERED || node[n].phase == UNANSWERED || node[n].phase == HELD ||  \
                node[n].phase == LOOKED ||                                                             \
                node[n].phase == CHECKED || node[n].phase == ENDED || node[n].renewal != NONE ||      \
                WANTS_RENEWAL(n) || MAY_ASK(n)))
#define HOLDS_TIME(n) (IS_OVERDUE(n) || IS_BUSY(n))
#define HAS_TIMER(n) (node[n].trust || node[n].renewed)

#ifdef NO_KEY
#define MAY_RECORD(f) (fire[f].state == ABSENT || (fire[f].state == OVER && !has_recorded))
#else
#define MAY_RECORD(f) (fire[f].state == ABSENT)
#endif
bit has_recorded; /* only if NO_KEY: once is enough */

inline record(f) {
#ifdef NO_KEY
  has_recorded = (fire[f].state == OVER);
#endif
  fire[f].state = PENDING; fire[f].attempt = 0; fire[f].fence = 0; fire[f].holder = 0
}

inline forget(f) {
  fire[f].state = ABSENT; fire[f].holder = 0; fire[f].fence = 0; fire[f].left = 0; fire[f].attempt = 0;
  fire[f].sentence = 0; fire[f].newest = 0; has_forgotten = 1
}

/* What the replica knew of a fire: all; or that it was claimed, not that it is settled; or nothing. */
inline remember(f) {
  if
  :: true
  :: fire[f].state == OVER -> fire[f].state = CLAIMED; fire[f].left = TTL - 1; has_forgotten = 1
  :: fire[f].state > ABSENT -> forget(f)
  fi
}

inline fail_over() {
  failovers++;
  ALL_GROW_OLD;
  remember(0);
  remember(1);
  if /* it cannot know what came later, and not what came before */
  :: !KEEPS_LANE && fire[0].fence > fire[1].fence -> forget(0)
  :: !KEEPS_LANE && fire[0].fence < fire[1].fence -> forget(1)
  :: else
  fi;
  if
  :: true
  :: served -> served = 0; ghost_is_new = (ghost == AN_ASK); has_forgotten = 1
  fi;
#ifdef COUNTER_FENCE
  counter = (fire[0].fence > fire[1].fence -> fire[0].fence : fire[1].fence);
#else
  counter = LEAP;
#endif
#ifndef NO_CALM
  calm = TTL;
#endif
}

/* A claim that no trouble but a lost answer lies over has an owner who knows of it, or will ask again. */
#define KNOWS(n, f)                                                                                    \
  (fire[f].holder != n || (node[n].phase >= HELD && node[n].fence == fire[f].fence) ||                \
   ((node[n].phase == ANSWERED || node[n].phase == UNANSWERED || node[n].phase == LOOKED) && fire[f].newest))
#if NODES > 2
#define HAS_OWNER(f) (!IS_LIVE(f) || failovers || (KNOWS(0, f) && KNOWS(1, f) && KNOWS(2, f)))
#else
#define HAS_OWNER(f) (!IS_LIVE(f) || failovers || (KNOWS(0, f) && KNOWS(1, f)))
#endif
#define IS_SETTLED(f) (fire[f].state == OVER)

proctype World() {
  end:
  do
  :: atomic { !ANY(HOLDS_TIME) && !(orphan && orphan_trust == 0) && !MAY_RECORD(0) && !MAY_RECORD(1) &&
      (ANY(HAS_TIMER) || fire[0].left || fire[1].left || calm || orphan_trust) ->
      assert(HAS_OWNER(0) && HAS_OWNER(1));
      ALL_GROW_OLD;
      PASS(fire[0].left); PASS(fire[1].left); PASS(calm); PASS(orphan_trust);
      PASS(node[0].trust); PASS(node[0].renewed); PASS(node[1].trust); PASS(node[1].renewed);
#if NODES > 2
      PASS(node[2].trust); PASS(node[2].renewed);
#endif
    }
  :: atomic { MAY_RECORD(0) -> record(0) }
  :: atomic { MAY_RECORD(1) -> record(1) }
  :: atomic { orphan -> orphan = 0; orphan_trust = 0 }

  /* A request that its sender has given up arrives. */
  :: atomic { ghost == AN_ASK ->
      if
      :: !ghost_is_older -> serve(ghost_node)
#ifdef ASK_NOT_NUMBERED
      :: ghost_is_older && calm == 0 -> grant_one(ghost_node, 0)
#else
      :: ghost_is_older && ghost_is_new && calm == 0 -> grant_one(ghost_node, 0)
#endif
      :: else
      fi;
      forget_ghost() }
  :: atomic { ghost == A_RENEWAL ->
      if
      :: MAY_RENEW(ghost_fire, ghost_fence) ->
        fire[ghost_fire].left = TTL;
        CHANGE_FIRE(ghost_fire);
        assert(KEEPS_LANE)
      :: else
      fi;
      forget_ghost() }
  :: atomic { ghost == A_REPORT -> finish(ghost_fire, ghost_fence, ghost_verdict); forget_ghost() }

  :: atomic { failovers < FAILOVERS -> fail_over() }

  /* Nothing can happen any more: then all must be over. */
  :: atomic { timeout -> assert(IS_SETTLED(0) && IS_SETTLED(1)); break }
  od
}

init {
  atomic {
    run World(); run Life(0); run Life(1);
#if NODES > 2
    run Life(2)
#endif
  }
}
