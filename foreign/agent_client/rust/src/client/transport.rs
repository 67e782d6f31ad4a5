//! The SDK's transports: a program on its standard streams, or an agent at an address, over its scheme's transport.

use agent_client_protocol::{
    AcpAgent, Agent, Channel, Client, ConnectTo, DynConnectTo, Error, LineDirection, Result,
};
use agent_client_protocol_http::HttpClient;
use futures::StreamExt;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

/// An agent at an address, whose messages are shown too.
struct Remote<F> {
    client: HttpClient,
    see: F,
}

/// Returns the agent of a command, or at the address that stands in its place. `see` gets each of its messages, in order.
pub fn transport(
    command: &[String],
    see: impl Fn(&str) + Send + Sync + 'static,
) -> Result<DynConnectTo<Client>> {
    let address = command.first().filter(|word| is_address(word));
    let Some(address) = address else {
        let agent = AcpAgent::from_args(command)?.with_debug(move |line, direction| {
            if direction == LineDirection::Stdout {
                see(line);
            }
        });
        return Ok(DynConnectTo::new(agent));
    };
    let mut headers = HeaderMap::new();
    if let Ok(token) = std::env::var("TRILOGUE_TOKEN") {
        let bearer = HeaderValue::try_from(format!("Bearer {token}"));
        headers.insert(AUTHORIZATION, bearer.map_err(Error::into_internal_error)?);
    }
    let client = HttpClient::builder_with_endpoint(address)
        .configure_http(|http| http.no_proxy().default_headers(headers))
        .build()
        .map_err(Error::into_internal_error)?;
    Ok(DynConnectTo::new(Remote { client, see }))
}

fn is_address(word: &str) -> bool {
    ["ws://", "http://"].iter().any(|scheme| word.starts_with(scheme))
}

// === impl Remote ===

impl<F: Fn(&str) + Send + Sync + 'static> ConnectTo<Client> for Remote<F> {
    async fn connect_to(self, client: impl ConnectTo<Agent>) -> Result<()> {
        let Self { client: remote, see } = self;
        let (channel, driver) = ConnectTo::<Client>::into_channel_and_future(remote);
        let driver = driver.ok_or_else(Error::internal_error)?;
        let (near, far) = Channel::duplex();
        // The end of the client ends what is sent, and then the transport.
        let sending = far.rx.map(Ok).forward(channel.tx);
        let (mut rx, tx) = (channel.rx, far.tx);
        let receiving = async move {
            while let Some(frame) = rx.next().await {
                see(&frame.to_json()?);
                if tx.unbounded_send(frame).is_err() {
                    break;
                }
            }
            Result::Ok(())
        };
        let carrying = async {
            let (sent, received, driven) = tokio::join!(sending, receiving, driver);
            // The transport's own error says more than the closed channel.
            driven.and(received).and(sent.map_err(Error::into_internal_error))
        };
        let (served, carried) = tokio::join!(client.connect_to(near), carrying);
        served.and(carried)
    }
}
