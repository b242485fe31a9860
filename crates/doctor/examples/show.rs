use doctor::{Case, goroutine};
fn main() {
    let mut case = Case::default();
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap();
        let t = std::time::Instant::now();
        let dumps = goroutine::parse(&path, &bytes);
        eprintln!("parse {:?}", t.elapsed());
        for d in &dumps {
            println!("== {path}: {} {} gaps {:?} taken {:?}", d.taken_for(), d.summary(), d.gaps, d.taken);
        }
        case.dumps.extend(dumps);
    }
    let t = std::time::Instant::now();
    let report = case.conclude();
    eprintln!("conclude {:?}", t.elapsed());
    for f in &report.findings {
        println!("- [{:?}] {:?} {}\n    held {:?}: {}", f.severity, f.class, f.title, f.held.as_ref().map(|h| h.mode), f.held.as_ref().map(|h| h.why.as_str()).unwrap_or(""));
        println!("    confidence {:?}: {}", f.confidence.level, f.confidence.why);
        for h in &f.holders { println!("    holder g{:?} {:?} {} | {} | {:?}", h.goroutine, h.confidence.level, h.frame, h.confidence.why, h.evidence.as_ref().and_then(|e| e.line)); }
        for c in &f.cycle { println!("    cycle g{:?} holds {} waits {}", c.goroutine, c.holds, c.waits_for); }
        for e in &f.waiters.by_entry { println!("    entry {:?} {} {}", e.kind, e.name, e.count); }
        for b in &f.blast_radius { println!("    blast {} {} {}", b.what, b.count, b.why); }
        if let Some(n) = &f.no_holder { println!("    no holder: {n}"); }
        for e in &f.evidence { println!("    ev {:?} {}", e.line, e.text); }
        for e in &f.details { println!("    detail {e}"); }
    }
    for c in &report.comparisons { println!("~ stuck {} moved {} arrived {} left {}", c.stuck, c.moved, c.arrived, c.left); }
    for p in &report.parked { println!("  parked {} {} {:?}", p.count, p.wants, p.frames.first()); }
    for n in &report.notes { println!("  note {}", n.text); }
}
