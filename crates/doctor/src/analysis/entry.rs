//! What a goroutine came in for: the RPC, webhook, handler, timer or loop at its root.

use crate::goroutine::{Dump, Name, Stack};
use crate::report::EntryKind;

use super::wait::is_std;

/// An entry point.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) kind: EntryKind,
    pub(super) name: String,
    pub(super) function: String,
}

/// Names the entry point of a stack.
pub(super) fn entry(dump: &Dump, stack: &Stack) -> Entry {
    let symbols: Vec<&str> = stack
        .frames
        .iter()
        .rev()
        .map(|f| dump.function(f.function))
        .collect();
    let creator = stack.created_by.map(|f| dump.function(f));
    of_symbols(&symbols, creator)
}

/// `symbols`: outermost first.
pub(super) fn of_symbols(symbols: &[&str], creator: Option<&str>) -> Entry {
    let made = |kind, name: String, function: &str| Entry {
        kind,
        name,
        function: function.into(),
    };
    let mut http = false;
    let mut timer = false;
    for symbol in symbols {
        let name = Name::of(symbol);
        if let Some(method) = grpc_method(&name) {
            return made(EntryKind::Grpc, method.to_owned(), symbol);
        }
        match (name.package, name.receiver, name.function) {
            ("net/http" | "golang.org/x/net/http2", ..) => http = true,
            ("time", None, "goFunc") => timer = true,
            (p, ..) if p.ends_with("util/wait") => timer = true,
            _ => {}
        }
    }
    let program = || {
        symbols.iter().copied().filter(|s| {
            let name = Name::of(s);
            !is_std(name.package) && !is_plumbing(&name)
        })
    };
    if http {
        if let Some(hook) = program().find(|s| is_webhook(s)) {
            return made(EntryKind::Webhook, Name::short(hook).to_owned(), hook);
        }
        let handler = program()
            .find(|s| Name::of(s).function != "ServeHTTP")
            .or_else(|| program().next());
        if let Some(handler) = handler {
            return made(EntryKind::Http, Name::short(handler).to_owned(), handler);
        }
    }
    let Some(root) = program().next() else {
        // Nothing of the program in it: whoever started it says most.
        let function = creator.or(symbols.first().copied()).unwrap_or("");
        return made(
            EntryKind::Goroutine,
            Name::short(function).to_owned(),
            function,
        );
    };
    let name = Name::of(root);
    let kind = if timer {
        EntryKind::Timer
    } else if name.package == "main" && name.function == "main" && !name.closure {
        EntryKind::Main
    } else {
        by_words(&name)
    };
    made(kind, Name::short(root).to_owned(), root)
}

/// The method in `_ControllerAgentService_ReportConnections_Handler`, as generated.
pub(super) fn grpc_method<'a>(name: &Name<'a>) -> Option<&'a str> {
    let inner = name.function.strip_prefix('_')?.strip_suffix("_Handler")?;
    inner.split_once('_').map(|(_, method)| method)
}

pub(super) fn is_webhook(symbol: &str) -> bool {
    let lower = symbol.to_ascii_lowercase();
    ["webhook", "admission", "admit"]
        .iter()
        .any(|word| lower.contains(word))
}

/// Kinds that only names show.
pub(super) fn by_words(name: &Name<'_>) -> EntryKind {
    let lower = format!("{}.{}", name.receiver.unwrap_or(""), name.function).to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["timer", "tick", "expire", "periodic"]) {
        EntryKind::Timer
    } else if has(&["watch", "informer", "reflector", "listener"]) {
        EntryKind::Watcher
    } else if has(&["worker", "reconcile", "processnext"]) {
        EntryKind::Worker
    } else {
        EntryKind::Goroutine
    }
}

/// Routers, interceptors and servers between the door and the program.
fn is_plumbing(name: &Name<'_>) -> bool {
    const PACKAGES: [&str; 13] = [
        "google.golang.org/grpc",
        "github.com/grpc-ecosystem/",
        "github.com/gorilla/",
        "github.com/go-chi/",
        "github.com/gin-gonic/",
        "github.com/labstack/echo",
        "github.com/julienschmidt/httprouter",
        "github.com/urfave/negroni",
        "github.com/prometheus/client_golang/",
        "go.opentelemetry.io/",
        "golang.org/x/net/",
        "k8s.io/apimachinery/pkg/util/wait",
        "golang.org/x/sync/errgroup",
    ];
    PACKAGES.iter().any(|p| name.package.starts_with(p))
        || (name.package.starts_with("github.com/emicklei/go-restful"))
}
