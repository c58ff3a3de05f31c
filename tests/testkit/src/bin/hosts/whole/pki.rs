//! As whom does a node speak: client certificates that the control plane's authority signs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// A certificate is valid since so long: clocks of this machine's containers are its own.
const SINCE: Duration = Duration::from_secs(60);
/// Long enough for every test, and the kubelet does not think of rotating it.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 3600);

/// The authority of a control plane.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads certificate and key.
    pub(super) fn load(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (pem, key) = (read(cert)?, read(key)?);
        let key = KeyPair::from_pem(&key).context("the authority's key cannot be used")?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key)
            .context("the authority's certificate cannot be used")?;
        Ok(Self { pem, issuer })
    }

    /// Its certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Certificate and key of a node's kubelet in one PEM text, as the kubelet keeps them; valid for `lifetime` from now.
    pub(crate) fn kubelet(&self, node: &str, lifetime: Duration) -> anyhow::Result<String> {
        let mut params = CertificateParams::new(Vec::new())?;
        let now = OffsetDateTime::now_utc();
        // A short one begins now: the kubelet plans its rotation by the whole of its life.
        params.not_before = if lifetime < LONG { now } else { now - SINCE };
        params.not_after = now + lifetime;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let names = &mut params.distinguished_name;
        names.push(DnType::OrganizationName, "system:nodes");
        names.push(DnType::CommonName, format!("system:node:{node}"));
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("cannot sign a node's certificate")?;
        Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
    }
}
