//! The kubelet's key and certificate: the key is made once and kept through every retry, so that a retry is the same machine; the
//! certificate stands with it in one file, as the kubelet's own rotation keeps them, behind a link that rotation moves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData, SubjectPublicKeyInfo};
use rustls::SignatureScheme;
use rustls::sign::SigningKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use super::journal::{Journal, write_whole};
use crate::domain::Timestamp;
use crate::domain::node::kubelet_user;
use crate::node::layout::Layout;

/// The longest key file that is read, in bytes.
const MAX_PEM: u64 = 256 * 1024;

/// A key that signs requests, of whichever form: the kubelet writes others than we do.
pub struct Key {
    signing: Arc<dyn SigningKey>,
    public: SubjectPublicKeyInfo,
    scheme: SignatureScheme,
    pem: Zeroizing<String>,
}

impl Key {
    fn parse(pem: Zeroizing<String>) -> anyhow::Result<Self> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).context("it holds no private key")?;
        let signing = rustls::crypto::ring::sign::any_ecdsa_type(&der).context("its key is not ECDSA")?;
        let public = signing.public_key().context("its key has no public half")?;
        let public = SubjectPublicKeyInfo::from_der(&public).context("its key is of no known kind")?;
        let scheme = if public.algorithm() == &rcgen::PKCS_ECDSA_P384_SHA384 {
            SignatureScheme::ECDSA_NISTP384_SHA384
        } else {
            SignatureScheme::ECDSA_NISTP256_SHA256
        };
        Ok(Self { signing, public, scheme, pem })
    }

    /// A request for a certificate of this key (PKCS #10, PEM). Of it the platform takes the key alone.
    pub fn request(&self, name: &str) -> anyhow::Result<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, kubelet_user(name));
        let request = params.serialize_request(self).context("no request for a certificate can be made")?;
        request.pem().context("no request for a certificate can be made")
    }

    /// Whether a certificate (PEM) is of this key.
    fn is_of(&self, certificate_pem: &str) -> anyhow::Result<bool> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).context("the platform's answer holds no certificate")?;
        let (_, certificate) =
            x509_parser::certificate::X509Certificate::from_der(&der).context("the certificate in the platform's answer is damaged")?;
        Ok(certificate.public_key().raw == self.public.subject_public_key_info().as_slice())
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        self.public.der_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.public.algorithm()
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signer = self.signing.choose_scheme(&[self.scheme]).ok_or(rcgen::Error::RemoteKeyError)?;
        signer.sign(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// The key that waits for its certificate.
fn pending(layout: &Layout) -> PathBuf {
    layout.kubelet_dir().join("pki/kubebyon-pending.key")
}

/// The key of this machine: the kubelet's present one, else the one that an earlier try made, else a new one, which is kept.
///
/// # Errors
/// It cannot be read or written.
pub fn key(layout: &Layout, journal: &mut Journal) -> anyhow::Result<Key> {
    for path in [layout.kubelet_client(), pending(layout)] {
        if let Some(pem) = read(&path)? {
            match Key::parse(pem) {
                Ok(key) => return Ok(key),
                Err(error) => {
                    tracing::warn!(path = %path.display(), error = %format!("{error:#}"), "a key that cannot be used is made anew");
                }
            }
        }
    }
    let pem = Zeroizing::new(KeyPair::generate().context("no key could be made")?.serialize_pem());
    let path = pending(layout);
    journal.tree(&layout.kubelet_dir())?;
    journal.folder(&layout.kubelet_dir(), 0o750)?;
    journal.folder(path.parent().unwrap_or(&path), 0o700)?;
    journal.write(&path, pem.as_bytes(), 0o600)?;
    Key::parse(pem)
}

fn read(path: &Path) -> anyhow::Result<Option<Zeroizing<String>>> {
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        Ok(meta) if meta.len() > MAX_PEM => bail!("{} has {} bytes and is no key: move it away", path.display(), meta.len()),
        Ok(_) => {
            std::fs::read_to_string(path).map(|pem| Some(Zeroizing::new(pem))).with_context(|| format!("cannot read {}", path.display()))
        }
    }
}

/// Whether what stands there is a certificate of that key which is good for a while yet.
fn is_good(path: &Path, key: &Key, now: Timestamp) -> bool {
    const WHILE: i64 = 3600;
    let Ok(Some(pem)) = read(path) else { return false };
    let Ok(der) = CertificateDer::from_pem_slice(pem.as_bytes()) else { return false };
    let Ok((_, certificate)) = x509_parser::certificate::X509Certificate::from_der(&der) else { return false };
    key.is_of(&pem).unwrap_or(false) && certificate.validity().not_after.timestamp() > now.as_secs() + WHILE
}

/// Puts the certificate that the platform signed beside its key, as the kubelet keeps its own. `same`: the membership is the one that there
/// was; then a present certificate of this key that has not ended is as good, and stays.
///
/// # Errors
/// The certificate is another key's; it cannot be written.
pub fn keep(layout: &Layout, journal: &mut Journal, key: &Key, certificate_pem: &str, same: bool, now: Timestamp) -> anyhow::Result<()> {
    ensure!(key.is_of(certificate_pem)?, "the platform answered with a certificate of another key: join again");
    let link = layout.kubelet_client();
    let folder = link.parent().context("the kubelet's certificate stands in a folder")?.to_owned();
    if !(same && is_good(&link, key, now)) {
        journal.folder(&folder, 0o700)?;
        let stamp: String = now.to_string().chars().take(19).map(|c| if c == 'T' || c == ':' { '-' } else { c }).collect();
        let file = format!("kubelet-client-{stamp}.pem");
        let both = Zeroizing::new(format!("{}\n{}", certificate_pem.trim_end(), key.pem.as_str()));
        journal.before_file(&folder.join(&file))?;
        write_whole(&folder.join(&file), both.as_bytes(), 0o600)?;
        journal.link(&link, Path::new(&file))?;
    }
    match std::fs::remove_file(pending(layout)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("cannot remove the key that was waiting"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::csr;
    use base64::Engine as _;

    /// The same key as the kubelet writes it (SEC 1), out of PKCS #8.
    fn sec1(pkcs8: &str) -> String {
        let der = rustls_pki_types::PrivatePkcs8KeyDer::from_pem_slice(pkcs8.as_bytes()).unwrap();
        let bytes = der.secret_pkcs8_der();
        // The octet string that ends a PKCS #8 structure of a key of P-256 holds the SEC 1 structure.
        let at = 2 + bytes.windows(4).position(|four| four == [0x04, 0x6d, 0x30, 0x6b]).unwrap();
        let body = base64::engine::general_purpose::STANDARD.encode(&bytes[at..]);
        format!("-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n")
    }

    #[test]
    fn the_key_stays_through_retries_and_proves_itself() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        let mut journal = Journal::open(&layout).unwrap();
        let first = key(&layout, &mut journal).unwrap();
        let again = key(&layout, &mut Journal::open(&layout).unwrap()).unwrap();
        assert_eq!(first.der_bytes(), again.der_bytes());
        let request = first.request("node-1").unwrap();
        assert_eq!(csr::describe(&request).unwrap().common_names, ["system:node:node-1"]);
        assert_eq!(csr::public_key_der(&request).unwrap(), first.public.subject_public_key_info());
        let mode = std::os::unix::fs::PermissionsExt::mode(&pending(&layout).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_kubelets_own_form_of_a_key_is_read() {
        let pem = KeyPair::generate().unwrap().serialize_pem();
        let theirs = Key::parse(sec1(&pem).into()).unwrap();
        assert_eq!(theirs.der_bytes(), Key::parse(pem.into()).unwrap().der_bytes());
        assert!(csr::describe(&theirs.request("a").unwrap()).is_ok());
    }

    #[test]
    fn a_certificate_is_kept_with_its_own_key_alone() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        let mut journal = Journal::open(&layout).unwrap();
        let mine = key(&layout, &mut journal).unwrap();
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        let strange = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        assert!(keep(&layout, &mut journal, &mine, &strange, false, now).is_err());
        let certificate = CertificateParams::default().self_signed(&mine).unwrap().pem();
        keep(&layout, &mut journal, &mine, &certificate, false, now).unwrap();
        assert!(!pending(&layout).exists());
        assert_eq!(std::fs::read_link(layout.kubelet_client()).unwrap(), Path::new("kubelet-client-2027-01-15-08-00-00.pem"));
        let kept = std::fs::read_to_string(layout.kubelet_client()).unwrap();
        assert!(kept.starts_with("-----BEGIN CERTIFICATE") && kept.contains("PRIVATE KEY"), "{kept}");
        assert_eq!(key(&layout, &mut journal).unwrap().der_bytes(), mine.der_bytes());
        let later = now.plus(std::time::Duration::from_secs(60));
        keep(&layout, &mut journal, &mine, &certificate, true, later).unwrap();
        let leads_to = |name: &str| std::fs::read_link(layout.kubelet_client()).unwrap() == Path::new(name);
        assert!(leads_to("kubelet-client-2027-01-15-08-00-00.pem"), "a good one of the same membership stays");
        keep(&layout, &mut journal, &mine, &certificate, false, later).unwrap();
        assert!(leads_to("kubelet-client-2027-01-15-08-01-00.pem"), "that of a former membership does not");
        let ended = Timestamp::from_micros(i64::MAX / 2);
        assert!(!is_good(&layout.kubelet_client(), &mine, ended));
    }
}
