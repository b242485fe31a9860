use std::os::unix::net::UnixStream;

use testkit::{Sandbox, requires};

use super::*;

fn loopback_only() -> bool {
    let links = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    links.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"))
}

#[test]
fn work_runs_inside_and_the_caller_stays_where_it_was() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let host = sandbox.host("a");
    let before = Namespace::current().unwrap().id();
    let namespace = Namespace::open(host.netns()).unwrap();

    let inside = namespace.run_in(|| (Namespace::current().unwrap().id(), loopback_only()));

    assert_eq!(inside.unwrap(), (namespace.id(), true));
    assert_ne!(namespace.id(), before);
    assert_eq!(Namespace::current().unwrap().id(), before);
}

#[test]
fn a_panic_inside_reaches_the_caller_who_stays_where_it_was() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let namespace = Namespace::open(sandbox.host("a").netns()).unwrap();
    let before = Namespace::current().unwrap().id();

    let work = std::panic::AssertUnwindSafe(|| namespace.run_in(|| panic!("as planned")));
    let panic = std::panic::catch_unwind(work).unwrap_err();

    assert_eq!(panic.downcast_ref(), Some(&"as planned"));
    assert_eq!(Namespace::current().unwrap().id(), before);
}

#[test]
fn a_socket_opened_inside_works_from_outside_and_outlives_the_name() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let host = sandbox.host("a");
    let namespace = Namespace::open(host.netns()).unwrap();
    let mut netlink = namespace.netlink().unwrap();
    drop(sandbox);
    assert!(!host.netns().exists());

    let links = netlink.links().unwrap();

    assert_eq!(links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["lo"]);
}

#[test]
fn what_is_no_network_namespace_is_refused() {
    let not_one = |file: OwnedFd| matches!(Namespace::try_from(file), Err(Error::NotANamespace));

    assert!(not_one(File::open("/").unwrap().into()));
    assert!(not_one(UnixStream::pair().unwrap().0.into()));
    assert!(not_one(File::open("/proc/self/ns/mnt").unwrap().into()));
    assert!(matches!(Namespace::open("/no/such/path"), Err(Error::Open(_))));

    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(matches!(Namespace::open(&fifo), Err(Error::NotANamespace)));
}

#[test]
fn the_same_namespace_has_the_same_id_by_whatever_path() {
    let [a, b] = ["/proc/self/ns/net", "/proc/thread-self/ns/net"].map(Namespace::open);
    assert_eq!(a.unwrap().id(), b.unwrap().id());
}

#[test]
fn a_new_one_is_empty_and_gone_when_nothing_holds_it() {
    requires!(netns);
    let before = Namespace::current().unwrap().id();
    let (a, b) = (Namespace::create().unwrap(), Namespace::create().unwrap());
    assert_ne!(a.id(), b.id());
    assert!(a.run_in(loopback_only).unwrap());
    assert_eq!(Namespace::current().unwrap().id(), before);

    let mut here = b.netlink().unwrap();
    let mac = crate::netlink::Mac([2, 0, 0, 0, 0, 1]);
    let peer = crate::netlink::VethPeer { name: "eth0", mac, namespace: a.as_fd() };
    here.create_veth(crate::netlink::Veth { name: "left", mac, mtu: 1500, group: None, peer })
        .unwrap();
    drop(a);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    // With the namespace its links go, and with them their other ends; the kernel takes its time.
    while here.link(crate::netlink::LinkRef::Name("left")).unwrap().is_some() {
        assert!(std::time::Instant::now() < until);
        thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn who_may_enter_no_namespace_still_works_in_its_own() {
    testkit::requires!(root);
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let (own, other) = (Namespace::current().unwrap(), Namespace::create().unwrap());
    let without = thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        sets.permitted.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        (own.run_in(|| 7).unwrap(), other.run_in(|| 7).unwrap_err().kind())
    });
    assert_eq!(without.join().unwrap(), (7, io::ErrorKind::PermissionDenied));
}
