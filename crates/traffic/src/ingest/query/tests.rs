use std::sync::Arc;

use objects::kinds::GroupMode;

use super::{Cursor, Page, Query, VerdictFilter};
use crate::conversations::{
    Conversation, Directory, Labels, Limits, Moment, PodFacts, Protocol, Readers, Record, Report,
    Router, Shard, Totals, shards,
};
use crate::groups::Groups;
use crate::rules::GroupMatcher;

fn seen(count: u16) -> Readers {
    let router = Router::new([1, 2], 3);
    let (mut shards, readers) = shards(router, Limits::default());
    let mut directory = Directory::new();
    for number in 0..4_u8 {
        let pod = PodFacts {
            uid: number.to_string().into(),
            namespace: format!("ns-{}", number % 2).into(),
            name: format!("pod-{number}").into(),
            owner: Some("Deployment/web".into()),
            node: "n".into(),
            addresses: vec![[10, 0, 0, number].into()],
            images: Vec::new(),
            labels: Labels::new(),
            from: Moment(0),
            until: None,
        };
        directory.apply_pod(&pod, Moment(0));
    }
    let records = (0..count).map(|n| Record {
        client: if n % 5 == 0 { [192, 0, 2, 1].into() } else { [10, 0, 0, (n % 4) as u8].into() },
        server: [10, 0, 0, (n / 4 % 4) as u8].into(),
        port: 1000 + n / 16,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes: u64::from(n), packets: 1, sessions: 1 },
        first: Moment(1000),
        // Many of the same second.
        last: Moment::from_seconds(100 + u32::from(n) / 7),
    });
    let report = Report {
        agent: "n".into(),
        incarnation: 1,
        sequence: 1,
        records: records.collect(),
        ..Report::default()
    };
    let routed = router.route(&report, &directory, |_| true);
    for (shard, batch) in shards.iter_mut().zip(&routed.parts) {
        shard.apply(batch, Moment::from_seconds(10_000));
    }
    shards.iter_mut().for_each(Shard::publish);
    readers
}

fn lines(page: &Page<'_>) -> Vec<Conversation> {
    page.lines.iter().map(|line| line.to_conversation().unwrap()).collect()
}

#[test]
fn pages_hold_every_conversation_once_the_latest_first() {
    let (readers, groups) = (seen(200), Groups::new(GroupMode::Discover));
    let view = readers.view();
    let all = Query { limit: 10_000, ..Query::default() }.run(&view, &groups);
    assert!(all.next.is_none() && all.matched == all.lines.len() && all.matched > 100);
    assert!(all.lines.is_sorted_by_key(|line| std::cmp::Reverse(line.last())));
    for limit in [1, 7, 60] {
        let mut query = Query { limit, ..Query::default() };
        let mut paged = Vec::new();
        loop {
            let page = query.run(&view, &groups);
            assert_eq!((page.matched, page.totals), (all.matched, all.totals));
            paged.extend(lines(&page));
            let Some(next) = page.next else { break };
            // As it comes back from who asks.
            query.after = Some(next.to_string().parse().unwrap());
        }
        assert_eq!(paged, lines(&all), "{limit} at a time");
    }
    assert!("yesterday".parse::<Cursor>().is_err());
}

#[test]
fn only_what_fits_is_there() {
    let (readers, groups) = (seen(200), Groups::new(GroupMode::Discover));
    let view = readers.view();
    let base = Query { limit: 1000, ..Query::default() };
    let all = base.run(&view, &groups);
    let check = |query: Query, fits: &dyn Fn(&Conversation) -> bool| {
        let found = lines(&query.run(&view, &groups));
        let expected: Vec<_> = lines(&all).into_iter().filter(|line| fits(line)).collect();
        assert!(!found.is_empty() && found.len() < all.lines.len(), "{query:?}");
        assert_eq!(found, expected, "{query:?}");
    };
    let ns: Arc<str> = "ns-1".into();
    let within = |end: &crate::conversations::End| end.endpoint.namespace() == Some(&ns);
    let outside = |end: &crate::conversations::End| end.endpoint.kind() == "external";
    check(Query { namespace: Some(Arc::clone(&ns)), ..base.clone() }, &|it| {
        within(&it.client) || within(&it.server)
    });
    check(Query { external: true, ..base.clone() }, &|it| outside(&it.client));
    let both = Query { external: true, namespace: Some(Arc::clone(&ns)), ..base.clone() };
    check(both, &|it| outside(&it.client) && within(&it.server));
    let group = Some(GroupMatcher::new("ns-1/Deployment/web").unwrap());
    check(Query { group, ..base.clone() }, &|it| within(&it.client) || within(&it.server));
    let since = Moment::from_seconds(110);
    check(Query { since, ..base.clone() }, &|it| it.last >= since);
    check(Query { port: Some(1003), ..base.clone() }, &|it| it.port == 1003);
    let none = Query { verdict: Some(VerdictFilter::Violates), ..base.clone() };
    assert_eq!(none.run(&view, &groups).matched, 0);
    let unjudged = Query { verdict: Some("unjudged".parse().unwrap()), ..base };
    assert_eq!(unjudged.run(&view, &groups).matched, all.matched);
    assert!("fine".parse::<VerdictFilter>().is_err());
}
