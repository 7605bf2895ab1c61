//! Calls through Outgate, with the guard it takes by itself.
//!
//! `compare/run.py` starts it beside the workers of other libraries, and says by environment variables what to call and
//! through which Redis. It says that it is ready, begins when it is told a line, and ends when its stdin does.

use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::str::FromStr;
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use outgate::{Limit, RedisStore, Throttle, Upstream};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::time::sleep;

/// One failure is shown.
static TOLD: Once = Once::new();

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, number("UPSTREAM_PORT")?))?;
    let limit = Limit::new(number("QUOTA")?, Duration::from_secs(number("WINDOW_SECONDS")?));
    let store = RedisStore::connect(&format!("redis://127.0.0.1:{}", number::<u16>("REDIS_PORT")?)).await?;
    let throttle = Throttle::builder().store(store).upstream(Upstream::new("upstream").limit(limit.clone())).build()?;
    let (process, callers): (u32, u32) = (number("PROCESS")?, number("CALLERS")?);

    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
    println!("ready {clock} {} outgate {}", limit.guard_or_default().as_secs_f64(), env!("CARGO_PKG_VERSION"));
    let mut told = BufReader::new(stdin()).lines();
    told.next_line().await?;
    let socket = Arc::new(socket);
    for caller in 0..callers {
        tokio::spawn(keep_calling(throttle.clone(), Arc::clone(&socket), format!("{process} {caller}")));
    }
    while told.next_line().await?.is_some() {}
    Ok(())
}

async fn keep_calling(throttle: Throttle, socket: Arc<UdpSocket>, call: String) {
    loop {
        if let Err(error) = call_once(&throttle, &socket, &call).await {
            TOLD.call_once(|| println!("error {error}"));
            sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn call_once(throttle: &Throttle, socket: &UdpSocket, call: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let permit = throttle.acquire("upstream").await?;
    // A datagram within one machine does not wait.
    socket.send(call.as_bytes())?;
    drop(permit);
    Ok(())
}

fn number<T: FromStr>(name: &str) -> Result<T, String> {
    let value = env::var(name).map_err(|error| format!("{name}: {error}"))?;
    value.parse().map_err(|_| format!("{name} is not such a number: {value}"))
}
