/* A model of how detent claims, renews, fences and recovers: everything that a few nodes and one store can do, in
 * any order.
 *
 * Every option of a `do` below is one step that can happen next.  Without faults, nodes take all their possible
 * steps, in any order, before time passes.  The faults: a node is stopped between two of its steps for any length
 * of time, or killed; a reply is lost; a request arrives after its sender has given up; the store fails over and
 * loses data.  A fault can happen at any moment, up to the limit for its kind below.
 *
 * Time is a set of timers that count down: until a claim expires, until its holder stops trusting it, until a
 * store that may have lost data grants claims again.  When the trust in a claim has run out, its work is killed
 * before the next tick: the warden does that, and no fault of the node prevents it.
 *
 * The rules are `assert` statements, at the places where they could break.  In addition, every run must end
 * (Spin also checks that there is no cycle), with every fire settled.
 *
 * Each of these definitions removes a safeguard, and the search must find what breaks:
 *   NO_FENCE            a claim that is not the newest can renew and finish too
 *   RENEW_AFTER_EXPIRY  a claim that has expired can be renewed
 *   ASK_NOT_NUMBERED    an ask that is repeated or late is served like a new one
 *   NO_KEY              an instant that was settled can be recorded again
 *   NO_LANE             a grant checks only its own fire
 *   NO_DISPOSITION      an expired claim is granted to no other node
 *   NO_TRUST_MARGIN     work is killed when its claim expires, not a margin earlier
 *   TRUST_FROM_ANSWER   trust counts from the reply, not from when the request was sent
 *   CHECK_THEN_START    the node checks its claim and then starts the work; the warden does not check
 *   NO_WARDEN           a node kills its own work, unless the node is stopped
 *   NO_QUARANTINE       a store in a new epoch grants at once
 *   COUNTER_FENCE       a store in a new epoch continues the fences that it remembers
 *   NO_FIRE_VERSION     a commit does not compare the version of the fire that it grants
 *   NO_LANE_VERSION     a commit does not compare the version of the lane
 *
 * An ask has two steps, look and commit: between them other processes act, and its node may be stopped or killed.
 * A renewal and a report are one step each, because they depend only on their own record, and the commit compares
 * its version and whether its claim is live.
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
#define LEAP 16 /* more than all grants of an epoch */
#define NO_NODE NODES

#ifdef NO_TRUST_MARGIN
#define TRUST TTL
#else
#define TRUST (TTL - 1)
#endif

/* The state of a fire in the store. */
#define ABSENT 0
#define PENDING 1
#define CLAIMED 2
#define OVER 3

/* The state of a node.  It has room for one claim. */
#define IDLE 0
#define ANSWERED 1   /* its ask was served; the reply is on its way */
#define UNANSWERED 2 /* no reply came: it repeats the ask with the same number */
#define HELD 3
#define CHECKED 4 /* only if CHECK_THEN_START */
#define RUNNING 5 /* work is alive */
#define ENDED 6   /* it has a verdict to report */
#define LOOKED 7  /* its ask was decided from its look, but not committed */

/* Verdicts. */
#define DONE 0
#define LOST 1
#define UNUSED 2

/* The reply to a renewal that is on its way; the kinds of a late request. */
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
  unsigned disposition : 1; /* the claim is to settle it, not to run it */
  unsigned newest : 1    /* claimed with the newest ask of its holder */
};

typedef Node {
  unsigned phase : 3;
  unsigned fire : 1;
  unsigned fence : 5;
  unsigned disposition : 1;
  unsigned attempt : 2;
  unsigned trust : 2; /* counts from when the request was sent */
  unsigned verdict : 2;
  unsigned lost : 1; /* the store replied that the claim is gone */
  unsigned renewal : 2;
  unsigned renewed : 2;  /* the trust after this renewal */
  unsigned renewals : 1; /* a claim is renewed once */
  unsigned paused : 1;
  unsigned has_asked : 1;
  unsigned looked : 2; /* the fire that its ask will be granted, + 1 */
  unsigned looked_settle : 1;
  unsigned fire_changed : 1; /* since the look */
  unsigned lane_changed : 1;
  unsigned is_old : 1 /* a tick or a failover happened after the look */
};

/* The store. */
Fire fire[FIRES];
unsigned counter : 5; /* the newest fence */
unsigned served : 4;  /* nodes whose newest ask was served */
unsigned quarantine : 2;

Node node[NODES];
unsigned pauses : 2, crashes : 2, failovers : 2, losses : 2;
bit has_forgotten;

/* Work whose node was killed: its warden still runs it. */
bit orphan;
unsigned orphan_trust : 2;

/* The late request. */
unsigned late : 2, late_node : 2, late_fire : 1, late_fence : 5, late_verdict : 2;
bit late_is_older; /* an ask: its node has sent a newer one */
bit late_is_new;   /* and the store has lost the newer one */

/* For the assertions: the attempts that were launched, and the highest fence among them. */
unsigned launched_0 : 3, launched_1 : 3, top : 5;

/* An inline takes no field of a structure as an argument. */
hidden byte which, whose, verdict;

#define BIT(n) (1 << (n))
#define OTHER(f) (1 - (f))
#define IS_LIVE(f) (fire[f].state == CLAIMED && fire[f].left > 0)
#define RUNS(f) (IS_LIVE(f) && !fire[f].disposition)
#ifdef NO_LANE
#define HAS_ROOM(f) true
#else
#define HAS_ROOM(f) (!RUNS(OTHER(f)))
#endif
#define MAY_RUN(f) (fire[f].state == PENDING && HAS_ROOM(f))
#ifdef NO_DISPOSITION
#define HAS_EXPIRED(f) false
#else
#define HAS_EXPIRED(f) (fire[f].state == CLAIMED && fire[f].left == 0)
#endif
#define HAS_WORK (quarantine == 0 && (MAY_RUN(0) || MAY_RUN(1) || HAS_EXPIRED(0) || HAS_EXPIRED(1)))
#define WORKS(n) (node[n].phase == RUNNING)
#define AWAKE(n) (!node[n].paused)
#if NODES > 2
#define ANY(test) (test(0) || test(1) || test(2))
#else
#define ANY(test) (test(0) || test(1))
#endif

/* ---- The store: each inline is one atomic call. ---- */

#define KEEPS_LANE (!(RUNS(0) && RUNS(1)))

/* A new version of a fire or of the lane: earlier looks are outdated. */
#define CHANGE_FIRE_OF(m, f) node[m].fire_changed = node[m].fire_changed | (node[m].looked == f + 1)
#define CHANGE_LANE_OF(m) node[m].lane_changed = node[m].lane_changed | (node[m].looked > 0)
#define OUTDATE(m) node[m].is_old = node[m].is_old | (node[m].phase == LOOKED)
#if NODES > 2
#define CHANGE_FIRE(f) CHANGE_FIRE_OF(0, f); CHANGE_FIRE_OF(1, f); CHANGE_FIRE_OF(2, f)
#define CHANGE_LANE CHANGE_LANE_OF(0); CHANGE_LANE_OF(1); CHANGE_LANE_OF(2)
#define ALL_OUTDATE OUTDATE(0); OUTDATE(1); OUTDATE(2)
#else
#define CHANGE_FIRE(f) CHANGE_FIRE_OF(0, f); CHANGE_FIRE_OF(1, f)
#define CHANGE_LANE CHANGE_LANE_OF(0); CHANGE_LANE_OF(1)
#define ALL_OUTDATE OUTDATE(0); OUTDATE(1)
#endif

inline grant(f, n, is_settle, is_newest) {
  assert(fire[f].state != OVER); /* a settled fire is not granted again */
  counter++;
  assert(counter != LEAP); /* otherwise LEAP is too small */
  fire[f].state = CLAIMED;
  fire[f].holder = n;
  fire[f].fence = counter;
  fire[f].left = TTL;
  fire[f].disposition = is_settle;
  fire[f].newest = is_newest;
  fire[f].attempt = fire[f].attempt + 1 - is_settle;
  CHANGE_FIRE(f);
  CHANGE_LANE;
  assert(KEEPS_LANE) /* a lane never has more live claims than its width */
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
#define IS_NEW_ASK(n) (quarantine == 0)
#else
#define IS_NEW_ASK(n) (quarantine == 0 && !(served & BIT(n)))
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

/* Serve the newest ask of a node in one step.  When it is repeated, its grants are only renewed. */
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
  node[n].looked = 0; node[n].looked_settle = 0;
  if
  :: IS_NEW_ASK(n) ->
    if
    :: MAY_RUN(0) -> node[n].looked = 1
    :: MAY_RUN(1) -> node[n].looked = 2
    :: HAS_EXPIRED(0) -> node[n].looked = 1; node[n].looked_settle = 1
    :: HAS_EXPIRED(1) -> node[n].looked = 2; node[n].looked_settle = 1
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

/* Commit the decision.  A fire or lane that changed after the look is not granted; the number is used in any case. */
inline commit(n) {
  if
  :: IS_NEW_ASK(n) ->
    served = served | BIT(n);
    if
    :: node[n].looked && !FIRE_CHANGED(n) && !LANE_CHANGED(n) ->
      which = node[n].looked - 1; verdict = node[n].looked_settle;
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

/* Only the newest claim can settle the fire, even if it has expired. */
inline finish(f, by, how) {
  if
  :: fire[f].state == CLAIMED && IS_NEWEST(f, by) ->
    CHANGE_FIRE(f);
    if
    :: !fire[f].disposition -> CHANGE_LANE
    :: else
    fi;
    fire[f].left = 0;
    fire[f].newest = 0;
    if
    :: how == DONE || (how == LOST && fire[f].attempt >= ATTEMPTS) -> fire[f].state = OVER
    :: else ->
      fire[f].state = PENDING;
      fire[f].attempt = fire[f].attempt - (how == UNUSED && !fire[f].disposition);
      fire[f].fence = 0;
      fire[f].holder = 0
    fi;
    fire[f].disposition = 0
  :: else
  fi
}

/* ---- A node. ---- */

inline be_idle(n) {
  node[n].phase = IDLE; node[n].fire = 0; node[n].fence = 0; node[n].disposition = 0; node[n].attempt = 0;
  node[n].trust = 0; node[n].verdict = 0; node[n].lost = 0; node[n].renewal = NONE; node[n].renewed = 0;
  node[n].renewals = 0; node[n].looked = 0; node[n].looked_settle = 0;
  node[n].fire_changed = 0; node[n].lane_changed = 0; node[n].is_old = 0
}

inline take(f, n) {
  node[n].fire = f; node[n].fence = fire[f].fence;
  node[n].disposition = fire[f].disposition; node[n].attempt = fire[f].attempt
}

/* Ask with the previous number or a new one. */
inline ask(n) {
  be_idle(n);
  node[n].phase = LOOKED;
  node[n].trust = TRUST;
  look(n)
}

inline be_answered(n) {
  commit(n);
  node[n].looked = 0; node[n].looked_settle = 0; node[n].fire_changed = 0; node[n].lane_changed = 0;
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

inline take_new_number(n) {
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
  :: late == AN_ASK && late_node == n -> late_is_older = 1
  :: else
  fi
}

inline end_work(n, how) {
  node[n].phase = ENDED; node[n].verdict = how;
  node[n].trust = 0; node[n].lost = 0; node[n].disposition = 0; node[n].attempt = 0;
  node[n].renewal = NONE; node[n].renewed = 0; node[n].renewals = 0
}

inline launch(n) {
  assert(!orphan && !ANY(WORKS)); /* no two fires of a lane run together */
  assert(node[n].fence > top);    /* the fence grows with every launch */
  top = node[n].fence;
  if /* an attempt is launched once, unless the store has lost it */
  :: node[n].fire == 0 ->
    assert(has_forgotten || !(launched_0 & BIT(node[n].attempt)));
    launched_0 = launched_0 | BIT(node[n].attempt)
  :: else ->
    assert(has_forgotten || !(launched_1 & BIT(node[n].attempt)));
    launched_1 = launched_1 | BIT(node[n].attempt)
  fi;
  node[n].phase = RUNNING
}

inline send_late(kind, n) {
  losses++;
  late = kind; late_node = n; late_is_older = 0;
  late_fire = node[n].fire; late_fence = node[n].fence; late_verdict = node[n].verdict
}

inline forget_late() {
  late = NONE; late_node = 0; late_fire = 0; late_fence = 0; late_verdict = 0;
  late_is_older = 0; late_is_new = 0
}

#ifdef TRUST_FROM_ANSWER
#define TRUSTED(since_sent) TRUST
#else
#define TRUSTED(since_sent) (since_sent)
#endif

#define MAY_FAIL (losses < LOSSES)
#define MAY_BE_LATE (MAY_FAIL && late == NONE)
#define MAY_ASK(n) (node[n].phase == IDLE && HAS_WORK)
/* Nodes are interchangeable, so they first ask in the order of their numbers. */
#define MAY_ASK_FIRST(n) (n == 0 || node[n - 1].has_asked)
/* A node renews a claim when some of its trust is used up, also before it has started the work. */
#define WANTS_RENEWAL(n)                                                                     \
  ((WORKS(n) || node[n].phase == HELD) && node[n].trust < TRUST && !node[n].renewals && \
   node[n].renewal == NONE && !node[n].lost)

inline report(n) {
  which = node[n].fire; whose = node[n].fence; verdict = node[n].verdict;
  finish(which, whose, verdict)
}

proctype Node_process(byte n) {
  end:
  do
  /* Claiming.  A call that fails is repeated under the same number. */
  :: atomic { AWAKE(n) && MAY_ASK(n) && MAY_ASK_FIRST(n) -> take_new_number(n); ask(n) }
  :: atomic { AWAKE(n) && MAY_ASK(n) && MAY_ASK_FIRST(n) && MAY_BE_LATE ->
      take_new_number(n); send_late(AN_ASK, n); node[n].phase = UNANSWERED }
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

  /* Starting: the process that starts the work also checks the claim. */
  :: atomic { AWAKE(n) && node[n].phase == HELD ->
      if
      :: node[n].disposition || node[n].lost -> end_work(n, LOST)
      :: !node[n].disposition && !node[n].lost && node[n].trust == 0 -> end_work(n, UNUSED)
#ifdef CHECK_THEN_START
      :: !node[n].disposition && !node[n].lost && node[n].trust > 0 -> node[n].phase = CHECKED
#else
      :: !node[n].disposition && !node[n].lost && node[n].trust > 0 -> launch(n)
#endif
      fi }
#ifdef CHECK_THEN_START
  :: atomic { AWAKE(n) && node[n].phase == CHECKED -> launch(n) }
#endif

  /* The work ends, even while its node is stopped; or it is killed. */
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
  :: atomic { AWAKE(n) && WANTS_RENEWAL(n) && MAY_BE_LATE -> send_late(A_RENEWAL, n) }
  :: atomic { AWAKE(n) && node[n].renewal == GRANTED ->
      node[n].trust = TRUSTED(node[n].renewed); node[n].renewal = NONE; node[n].renewed = 0 }
  :: atomic { AWAKE(n) && node[n].renewal == REFUSED -> node[n].lost = 1; node[n].renewal = NONE }
  :: atomic { AWAKE(n) && node[n].renewal != NONE && MAY_FAIL ->
      losses++; node[n].renewal = NONE; node[n].renewed = 0 }

  /* Settling: repeated until a reply arrives. */
  :: atomic { AWAKE(n) && node[n].phase == ENDED -> report(n); be_idle(n) }
  :: atomic { AWAKE(n) && node[n].phase == ENDED && MAY_FAIL -> losses++; report(n) }
  :: atomic { AWAKE(n) && node[n].phase == ENDED && MAY_BE_LATE -> send_late(A_REPORT, n) }

  /* The node is stopped for any time, or killed: after that it is a new instance. */
  :: atomic { AWAKE(n) && pauses < PAUSES && node[n].phase != IDLE -> pauses++; node[n].paused = 1 }
  :: atomic { node[n].paused -> node[n].paused = 0 }
#if CRASHES > 0
  :: atomic { crashes < CRASHES && node[n].phase != IDLE ->
      crashes++;
      if
      :: WORKS(n) -> orphan = 1; orphan_trust = node[n].trust
      :: else
      fi;
      take_new_number(n);
      if
      :: fire[0].holder == n -> fire[0].holder = NO_NODE
      :: else
      fi;
      if
      :: fire[1].holder == n -> fire[1].holder = NO_NODE
      :: else
      fi;
      if
      :: late == AN_ASK && late_node == n -> forget_late()
      :: else
      fi;
      be_idle(n);
      node[n].paused = 0 }
#endif
  od
}

/* ---- Time, the store, and late requests. ---- */

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
  fire[f].disposition = 0; fire[f].newest = 0; has_forgotten = 1
}

/* What the replica knows of a fire: everything; or that it was claimed, but not that it is settled; or nothing. */
inline remember(f) {
  if
  :: true
  :: fire[f].state == OVER -> fire[f].state = CLAIMED; fire[f].left = TTL - 1; has_forgotten = 1
  :: fire[f].state > ABSENT -> forget(f)
  fi
}

inline fail_over() {
  failovers++;
  ALL_OUTDATE;
  remember(0);
  remember(1);
  if /* it cannot know the later claim without the earlier one */
  :: !KEEPS_LANE && fire[0].fence > fire[1].fence -> forget(0)
  :: !KEEPS_LANE && fire[0].fence < fire[1].fence -> forget(1)
  :: else
  fi;
  if
  :: true
  :: served -> served = 0; late_is_new = (late == AN_ASK); has_forgotten = 1
  fi;
#ifdef COUNTER_FENCE
  counter = (fire[0].fence > fire[1].fence -> fire[0].fence : fire[1].fence);
#else
  counter = LEAP;
#endif
#ifndef NO_QUARANTINE
  quarantine = TTL;
#endif
}

/* Unless there was a failover, a live claim has an owner that knows of it, or that will repeat its ask. */
#define KNOWS(n, f)                                                                                    \
  (fire[f].holder != n || (node[n].phase >= HELD && node[n].fence == fire[f].fence) ||                \
   ((node[n].phase == ANSWERED || node[n].phase == UNANSWERED || node[n].phase == LOOKED) && fire[f].newest))
#if NODES > 2
#define HAS_OWNER(f) (!IS_LIVE(f) || failovers || (KNOWS(0, f) && KNOWS(1, f) && KNOWS(2, f)))
#else
#define HAS_OWNER(f) (!IS_LIVE(f) || failovers || (KNOWS(0, f) && KNOWS(1, f)))
#endif
#define IS_SETTLED(f) (fire[f].state == OVER)

proctype Rest() {
  end:
  do
  :: atomic { !ANY(HOLDS_TIME) && !(orphan && orphan_trust == 0) && !MAY_RECORD(0) && !MAY_RECORD(1) &&
      (ANY(HAS_TIMER) || fire[0].left || fire[1].left || quarantine || orphan_trust) ->
      assert(HAS_OWNER(0) && HAS_OWNER(1));
      ALL_OUTDATE;
      PASS(fire[0].left); PASS(fire[1].left); PASS(quarantine); PASS(orphan_trust);
      PASS(node[0].trust); PASS(node[0].renewed); PASS(node[1].trust); PASS(node[1].renewed);
#if NODES > 2
      PASS(node[2].trust); PASS(node[2].renewed);
#endif
    }
  :: atomic { MAY_RECORD(0) -> record(0) }
  :: atomic { MAY_RECORD(1) -> record(1) }
  :: atomic { orphan -> orphan = 0; orphan_trust = 0 }

  /* A late request arrives. */
  :: atomic { late == AN_ASK ->
      if
      :: !late_is_older -> serve(late_node)
#ifdef ASK_NOT_NUMBERED
      :: late_is_older && quarantine == 0 -> grant_one(late_node, 0)
#else
      :: late_is_older && late_is_new && quarantine == 0 -> grant_one(late_node, 0)
#endif
      :: else
      fi;
      forget_late() }
  :: atomic { late == A_RENEWAL ->
      if
      :: MAY_RENEW(late_fire, late_fence) ->
        fire[late_fire].left = TTL;
        CHANGE_FIRE(late_fire);
        assert(KEEPS_LANE)
      :: else
      fi;
      forget_late() }
  :: atomic { late == A_REPORT -> finish(late_fire, late_fence, late_verdict); forget_late() }

  :: atomic { failovers < FAILOVERS -> fail_over() }

  /* Nothing can happen any more: then all must be over. */
  :: atomic { timeout -> assert(IS_SETTLED(0) && IS_SETTLED(1)); break }
  od
}

init {
  atomic {
    run Rest(); run Node_process(0); run Node_process(1);
#if NODES > 2
    run Node_process(2)
#endif
  }
}
