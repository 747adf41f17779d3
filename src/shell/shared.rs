//! What a session shares with its handles: the driver, and who may carry out what it says.
//!
//! Whoever hands something in carries out at once what anybody may: events and aborts. So an abort is announced though
//! the session's own thread is in a call. Two threads never deliver at a time: while one does (`delivering`), what
//! others hand in waits in the driver's inbox (EF2), and the one that delivers goes on with it. No lock is held while
//! foreign code runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::handle::AbortSignal;
use super::listen::Listeners;
use super::trace::Trace;
use crate::driver::{Driver, Duty};
use crate::machine::RetryMachine;
use crate::time::Ambient;

/// What all handles of a session point to.
pub(super) struct Shared {
    core: Mutex<Core>,
    /// Notified with every wake: for threads, as the wakers are for tasks.
    changed: Condvar,
    clock: Box<dyn Fn() -> Ambient + Send + Sync>,
    pub(super) trace: Trace,
    /// For duties that nobody can abort.
    never: AbortSignal,
}

pub(super) struct Core {
    pub(super) driver: Driver,
    /// Somebody is calling the listeners, without the lock.
    delivering: bool,
    closed: bool,
    /// Counts what others than the session have done: a session that sleeps looks whether it has grown.
    version: u64,
    /// Empty while they are called.
    pub(super) listeners: Listeners,
    /// Of the call or compaction at hand.
    abort: Option<AbortSignal>,
    session: Option<Waker>,
    waiters: Vec<(u64, Waker)>,
    last_waiter: u64,
}

/// A duty that only the session can carry out.
pub(super) struct Next {
    pub(super) duty: Duty,
    /// Of the run or compaction that the duty is.
    pub(super) abort: AbortSignal,
    /// The version when it was told.
    pub(super) seen: u64,
}

/// The time, read when it is asked for, and again after foreign code, which may take long.
struct Reading<'s> {
    shared: &'s Shared,
    read: Option<Ambient>,
}

impl<'s> Reading<'s> {
    const fn of(shared: &'s Shared) -> Self {
        Self { shared, read: None }
    }

    fn now(&mut self) -> Ambient {
        *self.read.get_or_insert_with(|| self.shared.now())
    }

    const fn passed(&mut self) {
        self.read = None;
    }
}

impl Core {
    pub(super) const fn has_changed(&self, seen: u64) -> bool {
        self.version != seen
    }

    fn is_over(&self, prompt: u64) -> bool {
        self.closed || self.driver.prompts_settled() >= prompt
    }
}

impl Shared {
    pub(super) fn new(
        machine: RetryMachine,
        clock: impl Fn() -> Ambient + Send + Sync + 'static,
    ) -> Self {
        let core = Core {
            driver: Driver::new(machine),
            delivering: false,
            closed: false,
            version: 0,
            listeners: Listeners::default(),
            abort: None,
            session: None,
            waiters: Vec::new(),
            last_waiter: 0,
        };
        Self {
            core: Mutex::new(core),
            changed: Condvar::new(),
            clock: Box::new(clock),
            trace: Trace::default(),
            never: AbortSignal::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        // Nothing that can panic runs under the lock.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Ambient {
        (self.clock)()
    }

    pub(super) fn with_driver<R>(&self, act: impl FnOnce(&mut Driver) -> R) -> R {
        act(&mut self.lock().driver)
    }

    /// Hands something in and has it take effect.
    pub(super) fn command(&self, act: impl FnOnce(&mut Driver)) {
        self.with_driver(act);
        self.drain();
    }

    /// The session's next duty; None while somebody else delivers, who wakes the session afterwards.
    pub(super) fn advance(&self) -> Option<Next> {
        let mut core = self.lock();
        if core.delivering {
            return None;
        }
        let mut clock = Reading::of(self);
        loop {
            let duty = core.driver.next_by(|| clock.now());
            let left;
            (core, left) = self.carry_out(core, duty, &mut clock);
            let Some(duty) = left else { continue };
            let abort = if let Duty::Run { .. } | Duty::Compact { .. } = duty {
                core.abort.insert(AbortSignal::default()).clone()
            } else {
                self.never.clone()
            };
            let seen = core.version;
            return Some(Next { duty, abort, seen });
        }
    }

    /// Carries out what anybody may, unless somebody is at it already, and wakes everybody concerned.
    pub(super) fn drain(&self) {
        let mut core = self.lock();
        if core.delivering {
            return;
        }
        let mut clock = Reading::of(self);
        while let Some(duty) = core.driver.next_urgent_by(|| clock.now()) {
            (core, _) = self.carry_out(core, duty, &mut clock);
        }
        core.version += 1;
        let mut listeners = Listeners::default();
        if core.closed {
            std::mem::swap(&mut listeners, &mut core.listeners);
        }
        self.wake(core);
        // A hook may hold handles, and what it drops may be anything.
        listeners.close();
    }

    /// Gives back a duty that is not for everybody.
    fn carry_out<'s>(
        &'s self,
        mut core: MutexGuard<'s, Core>,
        duty: Duty,
        clock: &mut Reading<'_>,
    ) -> (MutexGuard<'s, Core>, Option<Duty>) {
        match duty {
            Duty::Emit(_) if core.listeners.is_empty() && !self.trace.is_on() => (core, None),
            Duty::Emit(event) => {
                let core = self.unlocked(core, clock, |listeners| {
                    self.trace.note(&event);
                    listeners.deliver(event);
                });
                (core, None)
            }
            Duty::AbortAgent => {
                let signal = core.abort.take();
                let core = self.unlocked(core, clock, |_| {
                    if let Some(signal) = signal {
                        signal.raise();
                    }
                });
                (core, None)
            }
            Duty::DropFailedMessage
            | Duty::Run { .. }
            | Duty::SwitchCredential { .. }
            | Duty::Compact { .. }
            | Duty::Settled(_)
            | Duty::WaitUntil(_)
            | Duty::WaitForReport
            | Duty::Idle => (core, Some(duty)),
        }
    }

    /// Calls foreign code, as the only one that does, without the lock.
    fn unlocked<'s>(
        &'s self,
        mut core: MutexGuard<'s, Core>,
        clock: &mut Reading<'_>,
        act: impl FnOnce(&mut Listeners),
    ) -> MutexGuard<'s, Core> {
        core.delivering = true;
        let mut listeners = std::mem::take(&mut core.listeners);
        drop(core);
        // Hooks are caught one by one. What else may panic here, such as a waker, must not keep the lock or the prompt;
        // what it said, the panic hook has printed.
        let _ = catch_unwind(AssertUnwindSafe(|| act(&mut listeners)));
        clock.passed();
        let mut core = self.lock();
        core.delivering = false;
        // Those registered meanwhile come after the others.
        listeners.append(&mut core.listeners);
        core.listeners = listeners;
        core
    }

    /// The session is gone: when all has been told, the listeners go, and nobody waits any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.drain();
    }

    /// Adds a listener, unless the session is gone.
    pub(super) fn listen(&self, add: impl FnOnce(&mut Listeners)) {
        let mut core = self.lock();
        if !core.closed {
            add(&mut core.listeners);
        }
    }

    /// Wakes the session, and the waiters if no prompt is running; without the lock, since to wake or drop a task can
    /// run anything.
    fn wake(&self, mut core: MutexGuard<'_, Core>) {
        let session = core.session.take();
        let over = core.closed || core.driver.is_settled();
        let waiters = if over {
            std::mem::take(&mut core.waiters)
        } else {
            Vec::new()
        };
        drop(core);
        self.changed.notify_all();
        session.into_iter().for_each(Waker::wake);
        for (_, waker) in waiters {
            waker.wake();
        }
    }

    /// Whether the session may go on; if not, its task is woken when something has changed.
    pub(super) fn poll_session(&self, cx: &Context<'_>, ready: impl FnOnce(&Core) -> bool) -> bool {
        let waker = cx.waker().clone();
        let mut core = self.lock();
        let ready = ready(&core);
        let old = if ready {
            core.session.take()
        } else {
            core.session.replace(waker)
        };
        drop(core);
        drop(old);
        ready
    }

    /// The session's next duty, as soon as nobody else delivers.
    pub(super) async fn next(&self) -> Next {
        std::future::poll_fn(|cx| {
            loop {
                if let Some(next) = self.advance() {
                    return Poll::Ready(next);
                }
                if !self.poll_session(cx, |core| !core.delivering) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// The future's output, unless it is interrupted first: that is looked at before each poll. The future is
    /// dropped when this returns.
    pub(super) async fn unless<F: Future>(
        &self,
        interrupted: impl Fn(&Core) -> bool,
        future: F,
    ) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if self.poll_session(cx, &interrupted) {
                return Poll::Ready(None);
            }
            future.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Whether the prompt of this number is over; if not, the waiter is woken when it is.
    pub(super) fn poll_over(&self, cx: &Context<'_>, prompt: u64, waiter: &mut u64) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut core = self.lock();
        let old = take_waiter(&mut core, *waiter);
        let over = core.is_over(prompt);
        if !over {
            core.last_waiter += 1;
            *waiter = core.last_waiter;
            core.waiters.push((*waiter, waker));
        }
        drop(core);
        drop(old);
        if over { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(super) fn forget_waiter(&self, waiter: u64) {
        let old = take_waiter(&mut self.lock(), waiter);
        drop(old);
    }
}

fn take_waiter(core: &mut Core, waiter: u64) -> Option<Waker> {
    let at = core.waiters.iter().position(|(id, _)| *id == waiter)?;
    Some(core.waiters.swap_remove(at).1)
}

/// The same for threads.
#[cfg(feature = "blocking")]
impl Shared {
    /// The session's next duty, as soon as nobody else delivers.
    pub(super) fn next_blocking(&self) -> Next {
        loop {
            if let Some(next) = self.advance() {
                return next;
            }
            let core = self.lock();
            let _core = self
                .changed
                .wait_while(core, |core| core.delivering)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until the instant, or until something else than the session has changed the version.
    pub(super) fn sleep_until(&self, due: crate::time::MonotonicMillis, seen: u64) {
        let mut core = self.lock();
        while !core.has_changed(seen) {
            let rest = super::next_sleep(due, self.now().monotonic);
            if rest.is_zero() {
                return;
            }
            (core, _) = self
                .changed
                .wait_timeout(core, rest)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the prompt of this number is over, for so long at most, and says whether it is.
    pub(super) fn wait_over(&self, prompt: u64, timeout: std::time::Duration) -> bool {
        let (core, _) = self
            .changed
            .wait_timeout_while(self.lock(), timeout, |core| !core.is_over(prompt))
            .unwrap_or_else(PoisonError::into_inner);
        core.is_over(prompt)
    }
}
