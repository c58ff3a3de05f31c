//! Tokens of service accounts that expire within seconds.
//!
//! The server itself issues none for less than ten minutes. These are signed with its own key, so what is real is what counts here: the
//! server looks at their expiry. It is lenient by a minute, and remembers for ten seconds that a token was good.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use super::ControlPlane;
use crate::clock::SimClock;

/// The server accepts a token for so long after its expiry.
const LENIENT: i64 = 60;

/// As in the command line of the API server.
const ISSUER: &str = "https://kubernetes.default.svc";

impl ControlPlane {
    /// A token of a service account that exists, accepted for so long from now, and up to ten seconds more when it was used before.
    pub async fn short_token(
        &self,
        (namespace, account): (&str, &str),
        valid: Duration,
    ) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
        let object = self.admin.done("GET", &path, &Value::Null).await?;
        let now = SimClock::from_wall(1.0).now().as_second();
        let expires = now + i64::try_from(valid.as_secs())? - LENIENT;
        let claims = json!({
            "iss": ISSUER, "aud": [ISSUER],
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "iat": now - 2 * LENIENT, "nbf": now - 2 * LENIENT, "exp": expires,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": account, "uid": object["metadata"]["uid"]},
            },
        });
        let key = std::fs::read_to_string(self.credentials.file("tokens.key"))?;
        sign(&key, &claims)
    }
}

/// A JSON web token.
fn sign(key: &str, claims: &Value) -> anyhow::Result<String> {
    let inner: String = key
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let key: ByteString = serde_json::from_value(json!(inner)).context("the key is no PEM")?;
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.0, &random)
        .map_err(|error| anyhow!("the key for tokens: {error}"))?;
    let head = url_safe(json!({"alg": "ES256", "typ": "JWT"}).to_string().as_bytes())?;
    let signed = format!("{head}.{}", url_safe(claims.to_string().as_bytes())?);
    let signature = pair
        .sign(&random, signed.as_bytes())
        .map_err(|error| anyhow!("a token cannot be signed: {error}"))?;
    Ok(format!("{signed}.{}", url_safe(signature.as_ref())?))
}

fn url_safe(bytes: &[u8]) -> anyhow::Result<String> {
    let value = serde_json::to_value(ByteString(bytes.to_vec()))?;
    let text = value.as_str().context("bytes are no text")?;
    Ok(text
        .trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_three_parts_without_padding() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let token = sign(&key, &json!({"sub": "??>>"})).unwrap();
        assert_eq!(token.split('.').count(), 3);
        assert!(!token.contains(['=', '+', '/']), "{token}");
    }
}
