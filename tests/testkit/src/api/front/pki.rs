//! Certificates: our own authority, what it signs, and who is named in what a client shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::parse_x509_certificate;

use crate::api::identity::Identity;

/// The authority that signs the server's and all clients' certificates.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    next: AtomicU32,
}

impl Authority {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "clustersim");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .context("cannot make the certificate authority")?;
        Ok(Self {
            issuer,
            next: AtomicU32::new(1),
        })
    }

    /// The authority's certificate in PEM.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A client certificate and its key in one PEM text, as the kubelet keeps them. The generation of the credentials is in the serial
    /// number.
    pub(super) fn client(&self, identity: &Identity) -> anyhow::Result<String> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
            .distinguished_name
            .push(DnType::CommonName, identity.user.clone());
        if let Some(group) = identity.groups.first() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group.clone());
        }
        let count = u64::from(self.next.fetch_add(1, Ordering::Relaxed));
        params.serial_number = Some(SerialNumber::from_slice(
            &(((identity.generation + 1) << 32) | count).to_be_bytes(),
        ));
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("cannot sign a client certificate")?;
        Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
    }

    /// A TLS configuration for 127.0.0.1 that accepts clients with and without a certificate.
    pub(super) fn server_config(&self) -> anyhow::Result<ServerConfig> {
        let mut params = CertificateParams::new(vec![
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("cannot sign the server certificate")?;
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| anyhow::anyhow!("cannot read back the server key: {error}"))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The user that a verified certificate names: CN is the user, every O a group.
pub(super) fn identity_of(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let subject = certificate.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok().map(str::to_owned))
        .collect();
    let serial = certificate
        .raw_serial()
        .iter()
        .rev()
        .take(8)
        .rev()
        .fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    Some(Identity {
        user,
        groups,
        generation: (serial >> 32).saturating_sub(1),
    })
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn a_certificate_names_user_group_and_generation() {
        let authority = Authority::new().unwrap();
        let identity = Identity {
            generation: 300,
            ..Identity::kubelet("n1")
        };
        let pem = authority.client(&identity).unwrap();
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(identity_of(&certificate), Some(identity));
    }
}
