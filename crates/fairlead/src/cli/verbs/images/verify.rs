//! `images verify`: signatures from files or from the registry, held against keys and identities that are
//! given; or handed in, to be held against the server's `ImageTrustRoot`s.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use pki::sigstore::{ImageSignature, PublicKey, TrustRoot, UnixTime, Verifier};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::cli::client::{Body, ClientResult, Route, ServerFlags};
use crate::cli::files;
use crate::cli::http::Trust;
use crate::cli::listing::{field, items};
use crate::cli::registry::{Registry, RegistryImage, is_digest};
use crate::output::{Failure, Output, yes_or_no};

/// Verify signatures of an image that cosign made
///
/// Signatures are read from files, or else from the image's registry: cosign's .sig tag, and bundles (v0.3)
/// among the referrers. They are verified here, with what is given: a public key; or an identity with
/// Sigstore's trusted_root.json, or with certificates and keys of logs. Nobody else is asked.
///
/// With --hand-in they are handed in to the server instead, which holds them against its ImageTrustRoots, and
/// again whenever one of these changes: imageSigned and imageVerifiers of admission rules decide on that.
///
/// Examples:
///   fairlead images verify acme.io/web/cart@sha256:… --key cosign.pub
///   fairlead images verify acme.io/web/cart@sha256:… --key cosign.pub --signature bundle.json
///   fairlead images verify acme.io/web/cart:v2 --trusted-root trusted_root.json \
///     --issuer https://token.actions.githubusercontent.com --subject https://github.com/acme/…
///   fairlead images verify acme.io/web/cart:v2 --hand-in
///
/// Exit codes: 0 verified or handed in, 1 not verified, 2 could not do it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Verify {
    /// The image, with its digest where signatures come from files
    image: String,
    /// Files with signatures: bundles, or what `cosign download signature` prints; `-` is standard input
    #[arg(long, num_args = 1.., value_name = "FILE")]
    signature: Vec<PathBuf>,
    /// The public key of the signer's keypair (PEM)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["issuer", "subject"])]
    key: Option<PathBuf>,
    /// Who vouches for the signer's identity, as https://accounts.google.com
    #[arg(long, value_name = "URL", requires = "subject")]
    issuer: Option<String>,
    /// The signer's identity: an address of mail, or a URL
    #[arg(long, value_name = "NAME", requires = "issuer")]
    subject: Option<String>,
    /// Sigstore's trusted_root.json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root_cert", "log_key", "certificate_log_key"])]
    trusted_root: Option<PathBuf>,
    /// Certificates to which those of signers chain (PEM)
    #[arg(long, value_name = "FILE")]
    root_cert: Option<PathBuf>,
    /// Keys of the transparency log (PEM): signatures must be in it
    #[arg(long, value_name = "FILE")]
    log_key: Option<PathBuf>,
    /// Keys of the log of certificates (PEM): certificates must be in it
    #[arg(long, value_name = "FILE")]
    certificate_log_key: Option<PathBuf>,
    /// Hand the signatures in to the server
    #[arg(long, conflicts_with_all = ["key", "issuer"])]
    hand_in: bool,
    /// Speak http with the registry
    #[arg(long)]
    plain_http: bool,
    /// File with USER:PASSWORD for the registry
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Certificate authority (PEM) of the registry [default: the public ones]
    #[arg(long, value_name = "FILE")]
    registry_ca: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// Keys and roots are some kilobytes, signatures some tens.
const LARGEST: u64 = 4 << 20;

pub(super) async fn run(args: &Verify) -> ClientResult<ExitCode> {
    let image = RegistryImage::parse(&args.image)?;
    let (digest, documents) = if args.signature.is_empty() {
        from_registry(args, &image).await?
    } else {
        if !is_digest(&image.reference) {
            let why = "signatures from files are of a digest: write the image as NAME@sha256:…";
            return Err(Failure(why.to_owned()).into());
        }
        let mut documents = Vec::new();
        for file in &args.signature {
            documents.extend(files::documents(file)?);
        }
        (image.reference.clone(), documents)
    };
    if args.hand_in {
        return hand_in(args, &digest, &documents).await;
    }
    Ok(verify(args, &digest, &documents)?)
}

async fn from_registry(
    args: &Verify,
    image: &RegistryImage,
) -> Result<(String, Vec<Value>), Failure> {
    let text = |file: &PathBuf| files::read(file, LARGEST);
    let credentials = args.credentials.as_ref().map(text).transpose()?;
    let credentials = credentials.map(|credentials| credentials.trim().to_owned());
    let authorities = args.registry_ca.as_ref().map(text).transpose()?;
    let authorities = authorities
        .map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>());
    let authorities = authorities
        .transpose()
        .map_err(|error| Failure(format!("--registry-ca has no certificate: {error:?}")))?;
    let trust = || authorities.clone().map_or(Trust::Public, Trust::Authorities);
    let mut registry = Registry::of(image, args.plain_http, trust, credentials)?;
    let digest = registry.digest(&image.reference).await?;
    let signatures = registry.signatures(&digest).await?;
    Ok((digest, signatures))
}

fn trusted(args: &Verify) -> Result<(TrustRoot, Verifier), Failure> {
    let read = |file: &PathBuf| files::read(file, LARGEST);
    let pem = |file: &Option<PathBuf>| file.as_ref().map_or(Ok(String::new()), read);
    let wrong = |error: pki::sigstore::Refused| Failure(error.to_string());
    let root = match &args.trusted_root {
        Some(file) => TrustRoot::of_json(&read(file)?).map_err(wrong)?,
        None => {
            let [log, certificates, certificate_log] =
                [&args.log_key, &args.root_cert, &args.certificate_log_key].map(pem);
            TrustRoot::of_pem(&log?, &certificates?, &certificate_log?).map_err(wrong)?
        }
    };
    let verifier = match (&args.key, &args.issuer, &args.subject) {
        (Some(file), ..) => Verifier::Keypair(PublicKey::of_pem(&read(file)?).map_err(wrong)?),
        (None, Some(issuer), Some(subject)) => {
            if args.trusted_root.is_none() && args.root_cert.is_none() {
                return Err(Failure(
                    "an identity needs --trusted-root, or --root-cert: nothing is fetched"
                        .to_owned(),
                ));
            }
            Verifier::Keyless { issuer: issuer.clone(), subject: subject.clone() }
        }
        _ => {
            return Err(Failure(
                "say who must have signed: --key FILE, or --issuer and --subject; or --hand-in"
                    .to_owned(),
            ));
        }
    };
    Ok((root, verifier))
}

fn verify(args: &Verify, digest: &str, documents: &[Value]) -> Result<ExitCode, Failure> {
    let (root, verifier) = trusted(args)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(now);
    let results: Vec<Value> = documents
        .iter()
        .map(|document| {
            let verified = ImageSignature::of_json(&document.to_string())
                .and_then(|signature| root.verify(&signature, digest, &verifier, now));
            match verified {
                Ok(()) => json!({"verified": true}),
                Err(why) => json!({"verified": false, "why": why.to_string()}),
            }
        })
        .collect();
    let verified = results.iter().any(|result| result["verified"] == true);
    let answer = json!({"image": args.image, "digest": digest, "verified": verified,
                        "signatures": results});
    args.output.print(&answer, || {
        let mut lines = vec![format!(
            "{digest}: {}",
            match (verified, results.is_empty()) {
                (true, _) => "verified",
                (false, true) => "not verified: it has no signature",
                (false, false) => "not verified",
            }
        )];
        for (i, result) in results.iter().enumerate() {
            let said = result["why"].as_str().unwrap_or("verified");
            lines.push(format!("  signature {}: {said}", i + 1));
        }
        lines.join("\n")
    })?;
    Ok(yes_or_no(verified))
}

async fn hand_in(args: &Verify, digest: &str, documents: &[Value]) -> ClientResult<ExitCode> {
    if documents.is_empty() {
        eprintln!("{digest} has no signature");
        return Ok(ExitCode::from(1));
    }
    let server = args.server.open_for(Duration::from_secs(60))?;
    let mut names = Vec::new();
    for document in documents {
        let route = Route::to(["images", "import"]);
        let answer: Value = server.post(&route, Body::Json(document)).await?;
        names.extend(items(&answer, "documents").iter().map(|one| field(one, "name")));
    }
    let answer = json!({"image": args.image, "digest": digest, "reports": names});
    args.output.print(&answer, || {
        let count = documents.len();
        format!("{digest}: {count} signatures handed in; `fairlead images show` says who signed")
    })?;
    Ok(ExitCode::SUCCESS)
}
