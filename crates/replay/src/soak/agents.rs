//! Agents report to a server that is killed, or one of whose writers hangs. What it has counted is never
//! more than what was sent, and exactly that once every agent has been counted again.

use std::time::Duration;

use edge::agents::client::Endpoint;
use flow::{Deadline, Tasks};

use super::{Rounds, Soak};
use crate::incident::Cannot;
use crate::record::memory_of;
use crate::stage::agents::{Agent, counted_sessions};
use crate::stage::server::Server;

const AGENTS: usize = 20;
const RECORDS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);
/// What a server of so few agents never needs.
const MEMORY: u64 = 1 << 30;

#[derive(Clone, Copy)]
enum Fault {
    Nothing,
    Hold,
    Kill,
}

const FAULTS: [(&str, Fault); 4] = [
    ("none", Fault::Nothing),
    ("none", Fault::Nothing),
    ("writer held", Fault::Hold),
    ("server killed", Fault::Kill),
];

pub(super) fn run(soak: &Soak, rounds: &Rounds<'_>) -> Result<(), Cannot> {
    let runtime = tokio::runtime::Runtime::new()?;
    let tasks = Tasks::new("agents");
    let ran = runtime.block_on(report(soak, rounds, &tasks));
    runtime.shutdown_background();
    ran
}

async fn report(soak: &Soak, rounds: &Rounds<'_>, tasks: &Tasks) -> Result<(), Cannot> {
    let data = soak.dir.join("data");
    let mut server = Server::start(&soak.program, &data)?;
    let mut agents: Vec<Agent> = (0..AGENTS).map(|number| Agent::new(number, RECORDS)).collect();
    while rounds.next() {
        let fault = rounds.fault(&FAULTS);
        match fault {
            Fault::Nothing => {}
            Fault::Hold => server.hold()?,
            Fault::Kill => {
                drop(server);
                server = Server::start(&soak.program, &data)?;
            }
        }
        let endpoint = Endpoint { addresses: vec![server.agents.to_string()], identity: None };
        let deadline = Deadline::after(PATIENCE);
        let pause = Duration::from_millis(500 + rounds.number(2000) as u64);
        let reporting = futures::future::join_all(agents.iter_mut().map(|agent| {
            let (endpoint, batch) = (&endpoint, agent.next());
            async move { agent.until_counted(&batch, endpoint, tasks, deadline).await }
        }));
        let released = async {
            tokio::time::sleep(pause).await;
            if let Fault::Hold = fault { server.release() } else { Ok(()) }
        };
        let (counted, released) = futures::join!(reporting, released);
        released?;
        if counted.contains(&false) {
            return Err("an agent's report was not counted".into());
        }
        look(&server, &agents).await?;
    }
    Ok(())
}

async fn look(server: &Server, agents: &[Agent]) -> Result<(), Cannot> {
    let wanted: u64 = agents.iter().map(Agent::sessions).sum();
    let mut counted = 0;
    // What is read was published less than a second ago.
    for _ in 0..40 {
        counted = counted_sessions(server).await?;
        if counted >= wanted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    if counted != wanted {
        return Err(format!("{counted} sessions are counted, and {wanted} were sent").into());
    }
    let memory = memory_of(server.process()).now;
    if memory > MEMORY {
        return Err(format!("the server takes {} MiB", memory >> 20).into());
    }
    Ok(())
}
