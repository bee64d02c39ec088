//! The certificate of the platform's own names: the configured one, or one of the platform's own authority.
//!
//! The own leaf keeps its key through every renewal, so that what is pinned stays right. Machines that join know the platform by its own
//! authority's hash; by a configured certificate like any site where this machine trusts it, else by the last certificate of its chain.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use rustls::CertificateError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::addressing::CurrentAddressing;
use super::keys::Keys;
use crate::api::state::{Identity, JoinTrust};
use crate::config::Config;
use crate::domain::join::Trust;
use crate::domain::{Ambient, Timestamp};
use crate::pki::{Authority, CertificateAuthority, LeafProfile};
use crate::proxy::PlatformTls;
use crate::store::certificates::CertificateRecord;
use crate::store::{self, Store};

/// How long the own leaf is good for; clients such as Apple's refuse more than 825 days.
const LEAF_TTL: Duration = Duration::from_secs(397 * 24 * 3600);
const SECRET: &str = "platform-tls";
const CONTEXT: &str = "platform/tls";

/// What the platform's own TLS is made from; sealed in the store.
#[derive(Serialize, Deserialize)]
struct OwnIdentity {
    authority: CertificateAuthority,
    key_pem: String,
    csr_pem: String,
}

/// Keeps the platform's certificate right.
pub struct PlatformIdentity {
    /// What the listener uses.
    pub tls: Arc<PlatformTls>,
    own: Option<OwnIdentity>,
    /// How a configured certificate was found to be known: by its chain and the host.
    judged: Mutex<Option<Judged>>,
}

/// A chain, the host that it is to be good for, and how it is known there.
type Judged = (Vec<CertificateDer<'static>>, String, Result<JoinTrust, String>);

impl PlatformIdentity {
    /// The configured certificate, else one of the own authority, whose certificate is written to `platform-ca.crt`.
    pub async fn load(
        config: &Config,
        store: &Store,
        ambient: &Ambient,
        keys: &Keys,
        addressing: &CurrentAddressing,
    ) -> anyhow::Result<Self> {
        if let (Some(cert), Some(key)) = (&config.tls.cert, &config.tls.key) {
            return Ok(Self { tls: Arc::new(PlatformTls::from_files(cert, key)?), own: None, judged: Mutex::default() });
        }
        let own = own_identity(store, ambient, keys).await?;
        write_public(&config.data_dir.join("platform-ca.crt"), &own.authority.cert_pem)?;
        let chain = sign(store, ambient, &own, addressing).await?;
        Ok(Self {
            tls: Arc::new(PlatformTls::from_pem(chain.as_bytes(), own.key_pem.as_bytes())?),
            own: Some(own),
            judged: Mutex::default(),
        })
    }

    /// Puts a fresh leaf in the place of the present one: at renewal, and when the platform's names changed.
    pub async fn renew(&self, store: &Store, ambient: &Ambient, addressing: &CurrentAddressing) -> anyhow::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let chain = sign(store, ambient, own, addressing).await?;
        Ok(self.tls.replace(chain.as_bytes(), own.key_pem.as_bytes())?)
    }

    /// Follows changes of given files, or renews the own leaf long before it ends.
    pub async fn keep(&self, store: &Store, ambient: &Ambient, addressing: &CurrentAddressing, shutdown: &CancellationToken) {
        if self.own.is_none() {
            return self.tls.watch(shutdown).await;
        }
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(LEAF_TTL / 3) => {}
            }
            if let Err(error) = self.renew(store, ambient, addressing).await {
                tracing::error!(%error, "the platform's certificate could not be renewed; it is tried again");
            }
        }
    }
}

impl Identity for PlatformIdentity {
    fn trust(&self, host: &str) -> Result<JoinTrust, String> {
        let chain = self.tls.chain();
        if self.own.is_some() {
            return by_authority(&chain);
        }
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, of, trust)) = &*judged
            && *known == chain
            && of == host
        {
            return trust.clone();
        }
        let trust = judge(&chain, host, Ambient::system().now());
        // Certificates end: a refusal, and what was found of one that is about to end, is looked at again each time.
        *judged = trust.is_ok().then(|| (chain, host.to_owned(), trust.clone()));
        trust
    }
}

/// How a configured certificate is known at a host: by everybody where this machine trusts it.
fn judge(chain: &[CertificateDer<'static>], host: &str, now: Timestamp) -> Result<JoinTrust, String> {
    let (leaf, rest) = chain.split_first().ok_or_else(|| "tls.cert holds no certificate".to_owned())?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is no host that a certificate can be for"))?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_secs()).unwrap_or_default()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let publicly = rustls_platform_verifier::Verifier::new(Arc::clone(&provider));
    match publicly.and_then(|verifier| verifier.verify_server_cert(leaf, rest, &name, &[], at)) {
        Ok(_) => return Ok(JoinTrust { trust: Trust::System, pin: None }),
        Err(rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            return Err("the certificate of tls.cert has ended: renew it".to_owned());
        }
        Err(_) => {}
    }
    let Some(last) = rest.last() else {
        return Err("the certificate of tls.cert is trusted by no public authority, and stands alone in its file: append its authority's \
                    certificate, so that machines that join can know it"
            .to_owned());
    };
    let mut roots = rustls::RootCertStore::empty();
    let verified = roots.add(last.clone()).and_then(|()| {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map_err(|error| rustls::Error::General(error.to_string()))?.verify_server_cert(leaf, rest, &name, &[], at)
    });
    match verified {
        Ok(_) => by_authority(chain),
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })) => Err(
            format!("the certificate of tls.cert is not for {host}: set join_base_url (`kubebyon settings set`) to a name that it is for"),
        ),
        Err(error) => Err(format!(
            "machines that join could not check the certificate of tls.cert ({error}): its file must hold the certificate, then each that \
             signed the one before, its authority's last"
        )),
    }
}

/// By the last certificate of the chain, and until there is a kubebyon by the key of the first.
fn by_authority(chain: &[CertificateDer<'static>]) -> Result<JoinTrust, String> {
    let (Some(leaf), Some(last)) = (chain.first(), chain.last()) else { return Err("the platform serves no certificate".to_owned()) };
    let (_, parsed) =
        x509_parser::parse_x509_certificate(leaf).map_err(|error| format!("the platform's certificate is damaged: {error}"))?;
    let pin = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(parsed.public_key().raw));
    Ok(JoinTrust { trust: Trust::Authority(hex::encode(Sha256::digest(last))), pin: Some(pin) })
}

async fn own_identity(store: &Store, ambient: &Ambient, keys: &Keys) -> anyhow::Result<OwnIdentity> {
    let stored = {
        let mut sql = store.read().await?;
        store::secrets::get(&mut *sql, None, SECRET).await?
    };
    let sealed = if let Some(sealed) = stored {
        sealed
    } else {
        let (key_pem, csr_pem) = crate::pki::key_and_csr("kubebyon")?;
        let authority = CertificateAuthority::create(ambient, Authority::Platform, "KubeBYON platform")?;
        let plain = zeroize::Zeroizing::new(serde_json::to_vec(&OwnIdentity { authority, key_pem, csr_pem })?);
        let fresh = keys.platform.seal(ambient, CONTEXT, &plain);
        let mut tx = store.begin().await?;
        let stands = store::secrets::put_if_absent(&mut tx, None, SECRET, keys.platform.id(), &fresh).await?;
        tx.commit().await?;
        stands
    };
    serde_json::from_slice(&keys.platform.open(CONTEXT, &sealed)?).context("the platform's own authority cannot be read from the store")
}

/// Signs the leaf for the platform's names and records it; gives the chain. The authority is part of it: joining machines know it by its hash
/// alone, and take it from here.
async fn sign(store: &Store, ambient: &Ambient, own: &OwnIdentity, addressing: &CurrentAddressing) -> anyhow::Result<String> {
    let names = addressing.get().platform_names;
    let profile = LeafProfile {
        common_name: names.first().cloned().unwrap_or_else(|| "kubebyon".to_owned()),
        organizations: Vec::new(),
        sans: names,
        server_auth: true,
        client_auth: false,
        ttl: LEAF_TTL,
    };
    let issued = own.authority.sign_csr(ambient, &own.csr_pem, &profile)?;
    let record = CertificateRecord {
        fingerprint: issued.fingerprint.clone(),
        cluster_id: None,
        authority: Authority::Platform.as_str().to_owned(),
        purpose: "platform".to_owned(),
        common_name: profile.common_name,
        not_before: issued.not_before,
        not_after: issued.not_after,
    };
    let mut tx = store.begin().await?;
    store::certificates::record(&mut tx, &[record]).await?;
    tx.commit().await?;
    Ok(format!("{}\n{}", issued.cert_pem.trim_end(), own.authority.cert_pem))
}

/// Writes what everybody may read; whole or not at all.
fn write_public(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        if std::fs::read_to_string(path).is_ok_and(|present| present == text) {
            return Ok(());
        }
        let draft = path.with_extension("new");
        std::fs::write(&draft, text)?;
        std::fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    /// A leaf for `k.example` and the authority that signed it.
    fn chain() -> [CertificateDer<'static>; 2] {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Ours");
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let leaf = CertificateParams::new(vec!["k.example".to_owned()]).unwrap();
        [leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone(), authority]
    }

    #[test]
    fn a_certificate_that_is_not_public_is_known_by_its_authority_and_pinned() {
        let (chain, now) = (chain(), Ambient::system().now());
        let trust = judge(&chain, "k.example", now).unwrap();
        assert_eq!(trust.trust, Trust::Authority(hex::encode(Sha256::digest(&chain[1]))));
        let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
        let expected = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(leaf.public_key().raw));
        assert_eq!(trust.pin, Some(expected));
    }

    #[test]
    fn what_machines_could_not_check_is_told_with_its_remedy() {
        let (chain, now) = (chain(), Ambient::system().now());
        let said = |chain: &[CertificateDer<'static>], host: &str| judge(chain, host, now).unwrap_err();
        assert!(said(&chain, "other.example").contains("not for other.example: set join_base_url"));
        assert!(said(&chain[..1], "k.example").contains("append its authority's certificate"));
        assert!(said(&[chain[0].clone(), self::chain()[1].clone()], "k.example").contains("its authority's last"));
        assert!(said(&chain, "a b").contains("is no host"));
    }
}
