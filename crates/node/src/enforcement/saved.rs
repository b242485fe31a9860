//! `ProgramFile`: the program on disk, from which a node that boots begins.
//!
//! The file is written whole beside the old one and takes its place; what cannot be read is no program.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::program::{
    Chain, ChainId, Class, ClassId, Denial, Direction, Element, LocalPod, PolicyKind, Program,
    Protocol, Rule, Set, SetId, SetKind, Source, Tier, TierKind, Unsettled, Verdict,
};
use serde::{Deserialize, Serialize};

/// The form of the file; one of another form is no program.
const FORM: u32 = 1;

#[derive(Clone, Debug)]
pub struct ProgramFile(PathBuf);

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{} cannot be read or written", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} holds no program: {why}", path.display())]
    Content { path: PathBuf, why: String },
}

impl ProgramFile {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns what was saved last; none if nothing was.
    pub fn load(&self) -> Result<Option<Program>, FileError> {
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.io(source)),
        };
        let content = |why: String| FileError::Content { path: self.0.clone(), why };
        let saved: SavedProgram = serde_json::from_reader(BufReader::new(file))
            .map_err(|error| content(error.to_string()))?;
        let program = saved.program().map_err(|why| content(why.to_owned()))?;
        program.check().map_err(|why| content(why.to_owned()))?;
        Ok(Some(program))
    }

    pub fn save(&self, program: &Program) -> Result<(), FileError> {
        self.write(program).map_err(|source| self.io(source))
    }

    fn write(&self, program: &Program) -> io::Result<()> {
        let named = self.0.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = named.unwrap_or_else(|| Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let draft = self.0.with_extension("new");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        let mut file = BufWriter::new(open.open(&draft)?);
        serde_json::to_writer(&mut file, &SavedProgram::of(program))?;
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&draft, &self.0)?;
        // Without this a power failure could bring the program of before back.
        File::open(dir)?.sync_all()
    }

    fn io(&self, source: io::Error) -> FileError {
        FileError::Io { path: self.0.clone(), source }
    }
}

#[derive(Serialize, Deserialize)]
struct SavedProgram {
    form: u32,
    generation: u64,
    sets: Vec<SavedSet>,
    chains: Vec<SavedChain>,
    classes: Vec<(String, Option<String>, Option<String>)>,
    pods: Vec<(IpAddr, String, String)>,
    unsettled_everywhere: bool,
    unsettled: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct SavedSet {
    id: String,
    #[serde(flatten)]
    elements: SavedElements,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedElements {
    Addresses(Vec<IpAddr>),
    AddressPorts(Vec<(IpAddr, u8, u16)>),
    Networks(Vec<(IpAddr, IpAddr)>),
    Domains(Vec<String>),
    OwnNode(()),
}

#[derive(Serialize, Deserialize)]
struct SavedChain {
    id: String,
    egress: bool,
    tiers: Vec<(SavedTier, Vec<SavedRule>)>,
}

#[derive(Serialize, Deserialize)]
struct SavedTier(#[serde(with = "TierForm")] TierKind);

#[derive(Serialize, Deserialize)]
#[serde(remote = "TierKind")]
enum TierForm {
    Quarantine,
    Admin,
    NetworkPolicy,
    Guard,
    Baseline,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PolicyKind")]
enum KindForm {
    NetworkPolicy,
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
    NetworkRule,
    Group,
    Quarantine,
}

#[derive(Serialize, Deserialize)]
struct SavedRule {
    verdict: SavedVerdict,
    ports: Vec<(u8, u16, u16)>,
    within: Option<String>,
    without: Vec<String>,
    report: bool,
    sources: Vec<SavedSource>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedVerdict {
    Accept,
    Drop,
    Reject,
    Pass,
    Report,
}

#[derive(Serialize, Deserialize)]
struct SavedSource {
    #[serde(with = "KindForm")]
    kind: PolicyKind,
    policy: String,
    rule: String,
}

fn id(text: &str) -> Result<u128, &'static str> {
    u128::from_str_radix(text, 16).map_err(|_| "a name is no hash")
}

impl SavedProgram {
    fn of(program: &Program) -> Self {
        let chain = |id: Option<ChainId>| id.map(|id| id.to_string());
        Self {
            form: FORM,
            generation: program.generation,
            sets: program
                .sets
                .iter()
                .map(|(id, set)| SavedSet { id: id.to_string(), elements: saved_elements(set) })
                .collect(),
            chains: program.chains.iter().map(|(id, chain)| saved_chain(*id, chain)).collect(),
            classes: program
                .classes
                .iter()
                .map(|(id, class)| (id.to_string(), chain(class.egress), chain(class.ingress)))
                .collect(),
            pods: program
                .pods
                .iter()
                .map(|(address, pod)| (*address, pod.pod.to_string(), pod.class.to_string()))
                .collect(),
            unsettled_everywhere: program.unsettled.everywhere,
            unsettled: program.unsettled.namespaces.iter().map(ToString::to_string).collect(),
        }
    }

    fn program(self) -> Result<Program, &'static str> {
        if self.form != FORM {
            return Err("it has another form");
        }
        let mut program = Program { generation: self.generation, ..Program::default() };
        for set in self.sets {
            program.sets.insert(SetId(id(&set.id)?), loaded_set(set.elements));
        }
        for chain in self.chains {
            program.chains.insert(ChainId(id(&chain.id)?), Arc::new(loaded_chain(chain)?));
        }
        let chain = |name: Option<String>| name.map(|name| id(&name).map(ChainId)).transpose();
        for (name, egress, ingress) in self.classes {
            let class = Class { egress: chain(egress)?, ingress: chain(ingress)? };
            program.classes.insert(ClassId(id(&name)?), class);
        }
        for (address, pod, class) in self.pods {
            program.pods.insert(address, LocalPod { pod: pod.into(), class: ClassId(id(&class)?) });
        }
        program.unsettled = Arc::new(Unsettled {
            everywhere: self.unsettled_everywhere,
            namespaces: self.unsettled.into_iter().map(Into::into).collect(),
        });
        Ok(program)
    }
}

fn saved_elements(set: &Set) -> SavedElements {
    let elements = set.elements.iter();
    match &set.kind {
        SetKind::Addresses => SavedElements::Addresses(
            elements
                .filter_map(|it| match it {
                    Element::Address(address) => Some(*address),
                    _ => None,
                })
                .collect(),
        ),
        SetKind::AddressPorts => SavedElements::AddressPorts(
            elements
                .filter_map(|it| match it {
                    Element::AddressPort { address, protocol, port } => {
                        Some((*address, protocol.0, *port))
                    }
                    _ => None,
                })
                .collect(),
        ),
        SetKind::Networks => SavedElements::Networks(
            elements
                .filter_map(|it| match it {
                    Element::Range { first, last } => Some((*first, *last)),
                    _ => None,
                })
                .collect(),
        ),
        SetKind::Domains(names) => {
            SavedElements::Domains(names.iter().map(ToString::to_string).collect())
        }
        SetKind::OwnNode => SavedElements::OwnNode(()),
    }
}

fn loaded_set(elements: SavedElements) -> Set {
    match elements {
        SavedElements::Addresses(all) => Set {
            kind: SetKind::Addresses,
            elements: all.into_iter().map(Element::Address).collect(),
        },
        SavedElements::AddressPorts(all) => Set {
            kind: SetKind::AddressPorts,
            elements: all
                .into_iter()
                .map(|(address, protocol, port)| Element::AddressPort {
                    address,
                    protocol: Protocol(protocol),
                    port,
                })
                .collect(),
        },
        SavedElements::Networks(all) => Set {
            kind: SetKind::Networks,
            elements: all.into_iter().map(|(first, last)| Element::Range { first, last }).collect(),
        },
        SavedElements::Domains(names) => {
            Set::new(SetKind::Domains(names.into_iter().map(Into::into).collect()))
        }
        SavedElements::OwnNode(()) => Set::new(SetKind::OwnNode),
    }
}

fn saved_chain(id: ChainId, chain: &Chain) -> SavedChain {
    let rule = |rule: &Rule| SavedRule {
        verdict: match rule.verdict {
            Verdict::Accept => SavedVerdict::Accept,
            Verdict::Deny(Denial::Drop) => SavedVerdict::Drop,
            Verdict::Deny(Denial::Reject) => SavedVerdict::Reject,
            Verdict::Pass => SavedVerdict::Pass,
            Verdict::Report => SavedVerdict::Report,
        },
        ports: rule.ports.iter().map(|it| (it.protocol.0, it.first, it.last)).collect(),
        within: rule.within.map(|id| id.to_string()),
        without: rule.without.iter().map(ToString::to_string).collect(),
        report: rule.report,
        sources: rule
            .sources
            .iter()
            .map(|source| SavedSource {
                kind: source.kind,
                policy: source.policy.to_string(),
                rule: source.rule.to_string(),
            })
            .collect(),
    };
    SavedChain {
        id: id.to_string(),
        egress: chain.direction == Direction::Egress,
        tiers: chain
            .tiers
            .iter()
            .map(|tier| (SavedTier(tier.kind), tier.rules.iter().map(rule).collect()))
            .collect(),
    }
}

fn loaded_chain(chain: SavedChain) -> Result<Chain, &'static str> {
    let rule = |rule: SavedRule| {
        Ok(Rule {
            verdict: match rule.verdict {
                SavedVerdict::Accept => Verdict::Accept,
                SavedVerdict::Drop => Verdict::Deny(Denial::Drop),
                SavedVerdict::Reject => Verdict::Deny(Denial::Reject),
                SavedVerdict::Pass => Verdict::Pass,
                SavedVerdict::Report => Verdict::Report,
            },
            ports: rule
                .ports
                .into_iter()
                .map(|(protocol, first, last)| policy::program::Ports {
                    protocol: Protocol(protocol),
                    first,
                    last,
                })
                .collect(),
            within: rule.within.map(|name| id(&name).map(SetId)).transpose()?,
            without: rule
                .without
                .iter()
                .map(|name| id(name).map(SetId))
                .collect::<Result<_, _>>()?,
            report: rule.report,
            sources: rule
                .sources
                .into_iter()
                .map(|it| Source { kind: it.kind, policy: it.policy.into(), rule: it.rule.into() })
                .collect(),
        })
    };
    let tiers = chain.tiers.into_iter().map(|(SavedTier(kind), rules)| {
        let rules = rules.into_iter().map(rule).collect::<Result<_, &'static str>>()?;
        Ok(Tier { kind, rules })
    });
    Ok(Chain {
        direction: if chain.egress { Direction::Egress } else { Direction::Ingress },
        tiers: tiers.collect::<Result<_, &'static str>>()?,
    })
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
