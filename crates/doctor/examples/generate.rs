//! Large goroutine profiles, the same for the same seed: the mixture of a controller that stands
//! still behind one lock (reports, joins, webhook reviews and timers queued behind two locks taken
//! in opposite orders, the rest at rest), in every form that Go prints.
//!
//! As a program it writes one to standard output; benchmarks and tests include it as a module.
//!
//! ```text
//! cargo run --release -p doctor --example generate -- debug2 200000 > stall.txt
//! ```

#![allow(dead_code, reason = "each of those who include this uses a part of it")]

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// `splitmix64`: small, fast, and the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }
}

/// Goroutines on one stack.
struct Kind {
    /// Of 190,359 goroutines; zero: exactly one.
    share: usize,
    state: &'static str,
    /// Whether the header says for how many minutes.
    parked: bool,
    /// As Go prints it; `@` stands for a pointer that differs from goroutine to goroutine.
    stack: &'static str,
}

const TOTAL: usize = 190_359;

/// `count` goroutines as `/debug/pprof/goroutine?debug=2` prints them: about a kilobyte each.
pub(crate) fn debug2(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut order: Vec<usize> = population(count)
        .iter()
        .enumerate()
        .flat_map(|(kind, &n)| std::iter::repeat_n(kind, n))
        .collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i + 1));
    }
    let mut out = Vec::with_capacity(count * 1150);
    let mut id = 1;
    for kind in order {
        let kind = &KINDS[kind];
        id += 1 + rng.below(40);
        write!(out, "goroutine {id} [{}", kind.state).expect("memory");
        if kind.parked {
            write!(out, ", {} minutes", 1 + rng.below(118)).expect("memory");
        }
        out.extend_from_slice(b"]:\n");
        let pointer = format!("0xc{:09x}", (rng.next() & 0xf_ffff_ffff) & !0x3f);
        for (i, part) in kind.stack.split('@').enumerate() {
            if i > 0 {
                out.extend_from_slice(pointer.as_bytes());
            }
            out.extend_from_slice(part.as_bytes());
        }
        out.push(b'\n');
    }
    out
}

/// The same goroutines folded by stack, as `debug=1` prints them.
pub(crate) fn debug1(count: usize) -> Vec<u8> {
    let mut out = format!("goroutine profile: total {count}\n");
    for (kind, n) in KINDS.iter().zip(population(count)) {
        write!(out, "{n} @").expect("memory");
        let frames = || called(kind).map(|(function, place)| (function, place, pc(function)));
        for (.., pc) in frames() {
            write!(out, " {pc:#x}").expect("memory");
        }
        out.push('\n');
        for (function, place, pc) in frames() {
            let at = place.split(' ').next().unwrap_or(place);
            writeln!(out, "#\t{:#x}\t{function}+0x25\t\t{at}", pc - 1).expect("memory");
        }
        out.push('\n');
    }
    out.into_bytes()
}

/// The same goroutines as a pprof protobuf, compressed as Go does it.
pub(crate) fn protobuf(count: usize) -> Vec<u8> {
    samples(population(count).into_iter().map(|n| (1, n as u64)))
}

/// The same with a sample for each goroutine, as tools that filter or merge profiles leave it.
pub(crate) fn unfolded(count: usize) -> Vec<u8> {
    samples(population(count).into_iter().map(|n| (n, 1)))
}

/// For each kind, so many samples of so many goroutines.
fn samples(of_kinds: impl Iterator<Item = (usize, u64)>) -> Vec<u8> {
    let mut profile = Message::default();
    let mut strings = vec![""];
    let mut places: Vec<(&str, &str)> = Vec::new();
    let value_type = [("goroutine", "count")].map(|(kind, unit)| {
        let mut m = Message::default();
        m.number(1, index(&mut strings, kind));
        m.number(2, index(&mut strings, unit));
        m
    });
    profile.message(1, &value_type[0]);
    for (kind, (samples, goroutines)) in KINDS.iter().zip(of_kinds) {
        let locations: Vec<u64> = called(kind).map(|f| index(&mut places, f) + 1).collect();
        let mut sample = Message::default();
        sample.packed(1, &locations);
        sample.packed(2, &[goroutines]);
        (0..samples).for_each(|_| profile.message(2, &sample));
    }
    for (id, (function, place)) in (1u64..).zip(&places) {
        let (file, line) = split_place(place);
        let mut at = Message::default();
        at.number(1, id);
        at.number(2, line);
        let mut location = Message::default();
        location.number(1, id);
        location.number(3, pc(function));
        location.message(4, &at);
        profile.message(4, &location);
        let mut f = Message::default();
        f.number(1, id);
        f.number(2, index(&mut strings, function));
        f.number(3, index(&mut strings, function));
        f.number(4, index(&mut strings, file));
        profile.message(5, &f);
    }
    for s in &strings {
        profile.bytes(6, s.as_bytes());
    }
    profile.number(9, 1_737_896_956_157_645_427);
    profile.message(11, &value_type[0]);
    profile.number(12, 1);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&profile.0).expect("memory");
    gzip.finish().expect("memory")
}

/// How many goroutines of each kind, `count` in all.
fn population(count: usize) -> Vec<usize> {
    let mut n: Vec<usize> = KINDS.iter().map(|kind| (kind.share * count / TOTAL).max(1)).collect();
    let others: usize = n[1..].iter().sum();
    n[0] = count.saturating_sub(others).max(1);
    n
}

/// The frames of a kind: function without arguments, and place. Not the one that says who started
/// it, which only `debug=2` shows.
fn called(kind: &'static Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut lines = kind.stack.lines();
    std::iter::from_fn(move || Some((lines.next()?, lines.next()?.trim_start())))
        .filter(|(function, _)| !function.starts_with("created by"))
        .map(|(function, place)| (&function[..function.rfind('(').unwrap_or(0)], place))
}

fn split_place(place: &'static str) -> (&'static str, u64) {
    let at = place.split(' ').next().unwrap_or(place);
    let (file, line) = at.rsplit_once(':').expect("every place has a line");
    (file, line.parse().expect("a line is a number"))
}

/// A program counter that is the function's own.
fn pc(function: &str) -> u64 {
    let hash = function
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    0x40_0000 + (hash & 0xff_ffff)
}

fn index<T: PartialEq>(table: &mut Vec<T>, entry: T) -> u64 {
    let at = table.iter().position(|e| *e == entry).unwrap_or_else(|| {
        table.push(entry);
        table.len() - 1
    });
    at as u64
}

/// As much of a protobuf writer as a profile needs.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u64, values: &[u64]) {
        let mut list = Self::default();
        values.iter().for_each(|&v| list.varint(v));
        self.message(field, &list);
    }
}

fn main() {
    let usage = "usage: generate debug2|debug1|protobuf|unfolded [goroutines] [seed]";
    let mut args = std::env::args().skip(1);
    let form = args.next().expect(usage);
    let count = args.next().map_or(200_000, |n| n.parse().expect(usage));
    let seed = args.next().map_or(1, |n| n.parse().expect(usage));
    let bytes = match form.as_str() {
        "debug2" => debug2(count, seed),
        "debug1" => debug1(count),
        "protobuf" => protobuf(count),
        "unfolded" => unfolded(count),
        _ => panic!("{usage}"),
    };
    std::io::stdout().write_all(&bytes).expect("standard output takes it");
}

const KINDS: &[Kind] = &[
    Kind {
        share: 128_846,
        state: "sync.RWMutex.RLock",
        parked: true,
        stack: "sync.runtime_SemacquireRWMutexR(0x0?, 0x0?, 0x0?)
	/go/src/runtime/sema.go:82 +0x25
sync.(*RWMutex).RLock(...)
	/go/src/sync/rwmutex.go:71
controller/cache.cacheMutexRLock()
	/src/controller/cache/mutex.go:31 +0x45
controller/cache.CacheMethod.GetHostCount(0x0?)
	/src/controller/cache/host.go:88 +0x1d
main.(*AgentService).ReportConnections(0x60?, {0x2d8c4e0?, @}, @)
	/src/controller/grpc.go:611 +0x9b
share._AgentService_ReportConnections_Handler.func1({0x2d8c4e0, @}, {0x0?, 0x0?})
	/src/share/service.pb.go:2207 +0x75
share._AgentService_ReportConnections_Handler({0x26a1b80?, 0x47d1e90}, {0x0?, 0x0?})
	/src/share/service.pb.go:2209 +0x138
google.golang.org/grpc.(*Server).processUnaryRPC(0xc000a8c1e0, {0x2d8fb40, @}, 0x0?)
	/src/vendor/grpc/server.go:1372 +0xe03
google.golang.org/grpc.(*Server).serveStreams.func2.1()
	/src/vendor/grpc/server.go:1016 +0x59
created by google.golang.org/grpc.(*Server).serveStreams.func2 in goroutine 8112
	/src/vendor/grpc/server.go:1027 +0x115
",
    },
    Kind {
        share: 47_501,
        state: "sync.Mutex.Lock",
        parked: true,
        stack: "sync.runtime_SemacquireMutex(0x0?, 0x0?, 0x0?)
	/go/src/runtime/sema.go:77 +0x25
sync.(*Mutex).lockSlow(0x47f2a60)
	/go/src/sync/mutex.go:171 +0x15d
sync.(*Mutex).Lock(...)
	/go/src/sync/mutex.go:90
sync.(*RWMutex).Lock(0x0?)
	/go/src/sync/rwmutex.go:147 +0x31
controller/cache.cacheMutexLock()
	/src/controller/cache/mutex.go:19 +0x45
controller/cache.AgentAdmissionRequest(@)
	/src/controller/cache/agent.go:402 +0x1a5
main.(*AgentService).RequestAdmission(0x0?, {0x2d8c4e0?, @}, @)
	/src/controller/grpc.go:288 +0x2b
share._AgentService_RequestAdmission_Handler.func1({0x2d8c4e0, @}, {0x0?, 0x0?})
	/src/share/service.pb.go:1811 +0x75
share._AgentService_RequestAdmission_Handler({0x26a1b80?, 0x47d1e90}, {0x0?, 0x0?})
	/src/share/service.pb.go:1813 +0x138
google.golang.org/grpc.(*Server).processUnaryRPC(0xc000a8c1e0, {0x2d8fb40, @}, 0x0?)
	/src/vendor/grpc/server.go:1372 +0xe03
google.golang.org/grpc.(*Server).serveStreams.func2.1()
	/src/vendor/grpc/server.go:1016 +0x59
created by google.golang.org/grpc.(*Server).serveStreams.func2 in goroutine 8112
	/src/vendor/grpc/server.go:1027 +0x115
",
    },
    Kind {
        share: 9_832,
        state: "sync.RWMutex.RLock",
        parked: true,
        stack: "sync.runtime_SemacquireRWMutexR(0x0?, 0x0?, 0x0?)
	/go/src/runtime/sema.go:82 +0x25
sync.(*RWMutex).RLock(...)
	/go/src/sync/rwmutex.go:71
controller/cache.cacheMutexRLock()
	/src/controller/cache/mutex.go:31 +0x45
controller/cache.matchK8sAdmissionRules({0x2a0c1b1, 0x6}, @, @)
	/src/controller/cache/admission.go:1544 +0x2c5
controller/cache.CacheMethod.MatchK8sAdmissionRules(0x0?, {0x2a0c1b1, 0x6}, @, @)
	/src/controller/cache/admission.go:1702 +0x1e5
controller/rest.walkThruContainers({0x2a0c1b1, 0x6}, @, 0x0)
	/src/controller/rest/admwebhook.go:755 +0x4b2
controller/rest.(*WebhookServer).validate(@, @, 0x1)
	/src/controller/rest/admwebhook.go:1103 +0x9a1
controller/rest.(*WebhookServer).serveK8s(@, {0x2d8a0f0, @}, @)
	/src/controller/rest/admwebhook.go:1288 +0x3b5
controller/rest.(*WebhookServer).serve(@, {0x2d8a0f0, @}, @)
	/src/controller/rest/admwebhook.go:1412 +0x2a5
net/http.HandlerFunc.ServeHTTP(@, {0x2d8a0f0?, @?}, 0x0?)
	/go/src/net/http/server.go:2136 +0x29
net/http.(*conn).serve(@, {0x2d8c4e0, @})
	/go/src/net/http/server.go:2009 +0x5f4
created by net/http.(*Server).Serve in goroutine 3301
	/go/src/net/http/server.go:3086 +0x5cb
",
    },
    Kind {
        share: 2_573,
        state: "sync.Mutex.Lock",
        parked: true,
        stack: "sync.runtime_SemacquireMutex(0x0?, 0x0?, 0x0?)
	/go/src/runtime/sema.go:77 +0x25
sync.(*Mutex).lockSlow(0x47f2a60)
	/go/src/sync/mutex.go:171 +0x15d
sync.(*Mutex).Lock(...)
	/go/src/sync/mutex.go:90
sync.(*RWMutex).Lock(0x0?)
	/go/src/sync/rwmutex.go:147 +0x31
controller/cache.cacheMutexLock()
	/src/controller/cache/mutex.go:19 +0x45
controller/cache.(*groupRemovalEvent).Expire(@)
	/src/controller/cache/group.go:212 +0x3d
share/utils.(*TimerWheel).expire.func1(@)
	/src/share/utils/timer.go:97 +0x2f
created by share/utils.(*TimerWheel).expire in goroutine 41
	/src/share/utils/timer.go:95 +0x85
",
    },
    Kind {
        share: 0,
        state: "sync.Mutex.Lock",
        parked: true,
        stack: "sync.runtime_SemacquireMutex(0x0?, 0x0?, 0x0?)
	/go/src/runtime/sema.go:77 +0x25
sync.(*Mutex).lockSlow(0xc000b0a048)
	/go/src/sync/mutex.go:171 +0x15d
sync.(*Mutex).Lock(...)
	/go/src/sync/mutex.go:90
controller/cache.(*dispatcher).push(0xc000b0a000, {0xc0017c41b0, 0x24}, 0x2)
	/src/controller/cache/dispatch.go:77 +0x4a
controller/cache.refreshGroupMember(0xc0017c4000)
	/src/controller/cache/group.go:641 +0x3d1
controller/cache.workloadUpdate(0xc001a10000)
	/src/controller/cache/workload.go:318 +0x5c5
created by controller/cache.startWatch in goroutine 1
	/src/controller/cache/watch.go:55 +0x125
",
    },
    Kind {
        share: 0,
        state: "sync.RWMutex.RLock",
        parked: true,
        stack: "sync.runtime_SemacquireRWMutexR(0x0?, 0x0?, 0x0?)
	/go/src/runtime/sema.go:82 +0x25
sync.(*RWMutex).RLock(...)
	/go/src/sync/rwmutex.go:71
controller/cache.cacheMutexRLock()
	/src/controller/cache/mutex.go:31 +0x45
controller/cache.getGroupMembers({0xc0017c41b0, 0x24})
	/src/controller/cache/group.go:480 +0x35
controller/cache.(*dispatcher).flush(0xc000b0a000)
	/src/controller/cache/dispatch.go:131 +0x1a9
controller/cache.(*dispatcher).run(0xc000b0a000)
	/src/controller/cache/dispatch.go:52 +0x93
created by controller/cache.newDispatcher in goroutine 1
	/src/controller/cache/dispatch.go:40 +0xb5
",
    },
    Kind {
        share: 530,
        state: "IO wait",
        parked: false,
        stack: "internal/poll.runtime_pollWait(0x7f716c954f78, 0x72)
	/go/src/runtime/netpoll.go:343 +0x85
internal/poll.(*pollDesc).wait(@?, 0xc001f2a000?, 0x0)
	/go/src/internal/poll/fd_poll_runtime.go:84 +0x27
internal/poll.(*FD).Read(@, {@, 0x8000, 0x8000})
	/go/src/internal/poll/fd_unix.go:164 +0x27a
net.(*conn).Read(@, {@?, 0x0?, 0x0?})
	/go/src/net/net.go:179 +0x45
google.golang.org/grpc/internal/transport.(*http2Server).HandleStreams(@, @, 0x2a8f0e0)
	/src/vendor/grpc/internal/transport/http2_server.go:644 +0x165
google.golang.org/grpc.(*Server).serveStreams(0xc000a8c1e0, {0x2d8fb40, @})
	/src/vendor/grpc/server.go:1007 +0x396
created by google.golang.org/grpc.(*Server).handleRawConn in goroutine 99
	/src/vendor/grpc/server.go:931 +0x185
",
    },
    Kind {
        share: 530,
        state: "select",
        parked: true,
        stack: "google.golang.org/grpc/internal/transport.(*controlBuffer).get(@, 0x1)
	/src/vendor/grpc/internal/transport/controlbuf.go:418 +0x113
google.golang.org/grpc/internal/transport.(*loopyWriter).run(@)
	/src/vendor/grpc/internal/transport/controlbuf.go:552 +0x86
created by google.golang.org/grpc/internal/transport.NewServerTransport in goroutine 100
	/src/vendor/grpc/internal/transport/http2_server.go:336 +0x1985
",
    },
    Kind {
        share: 340,
        state: "select",
        parked: false,
        stack: "google.golang.org/grpc/internal/transport.(*http2Server).keepalive(@)
	/src/vendor/grpc/internal/transport/http2_server.go:1152 +0x1f5
created by google.golang.org/grpc/internal/transport.NewServerTransport in goroutine 100
	/src/vendor/grpc/internal/transport/http2_server.go:352 +0x19c5
",
    },
    Kind {
        share: 64,
        state: "sync.Cond.Wait",
        parked: true,
        stack: "sync.runtime_notifyListWait(@, 0x1f)
	/go/src/runtime/sema.go:527 +0x159
sync.(*Cond).Wait(0x0?)
	/go/src/sync/cond.go:70 +0x85
controller/cache.(*queue).take(@)
	/src/controller/cache/queue.go:44 +0x65
created by controller/cache.startWorkers in goroutine 1
	/src/controller/cache/queue.go:20 +0xa5
",
    },
    Kind {
        share: 0,
        state: "select",
        parked: true,
        stack: "main.main()
	/src/controller/controller.go:701 +0x29f4
",
    },
];
