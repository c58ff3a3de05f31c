//! Certificates of a control plane: an authority, and what it signs.

use std::time::Duration;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::clock::SimClock;

/// Longer than any run.
pub(super) const LONG: Duration = Duration::from_secs(30 * 24 * 3600);

const MINUTE: Duration = Duration::from_secs(60);

/// A certificate with its key, both in PEM.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Pair {
    /// Both in one text, as the kubelet keeps them.
    pub(super) fn together(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }
}

/// An authority.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .with_context(|| format!("cannot make the authority {name}"))?;
        Ok(Self { issuer })
    }

    /// Its certificate in PEM.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its key in PEM.
    pub(super) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a server (with `names`) or a client (without), which names `user` and, as organizations, `groups`.
    pub(super) fn sign(
        &self,
        user: &str,
        groups: &[String],
        names: Vec<String>,
        valid: Duration,
    ) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::new(names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        params.distinguished_name.push(DnType::CommonName, user);
        // A name holds an organization once here; more groups than one are for tokens.
        if let Some(group) = groups.first() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        // From a minute ago: the server's clock counts seconds.
        let now = Duration::from_secs(unix_seconds());
        params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(MINUTE);
        params.not_after = date_time_ymd(1970, 1, 1) + now + valid;
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot sign a certificate for {user}"))?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn unix_seconds() -> u64 {
    u64::try_from(SimClock::from_wall(1.0).now().as_second()).unwrap_or_default()
}
