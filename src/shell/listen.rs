//! Hooks and subscribers.
//!
//! Hooks are called one after the other, in order of registration, before the agent goes on. Subscribers have a queue
//! of bounded length each, which the agent never waits for: a slow one loses its oldest events and learns how many.

use core::fmt;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use crate::driver::SessionEvent;

type Hook = Box<dyn FnMut(&SessionEvent) + Send>;

/// All listeners of a session.
#[derive(Default)]
pub(super) struct Listeners {
    hooks: Vec<Hook>,
    subscribers: Vec<Weak<Queue>>,
}

impl Listeners {
    pub(super) const fn is_empty(&self) -> bool {
        self.hooks.is_empty() && self.subscribers.is_empty()
    }

    pub(super) fn add_hook(&mut self, hook: Hook) {
        self.hooks.push(hook);
    }

    pub(super) fn add_subscriber(&mut self, subscription: &Subscription) {
        self.subscribers.retain(|queue| queue.strong_count() > 0);
        self.subscribers.push(Arc::downgrade(&subscription.queue));
    }

    pub(super) fn append(&mut self, others: &mut Self) {
        self.hooks.append(&mut others.hooks);
        self.subscribers.append(&mut others.subscribers);
    }

    /// Hooks first, then subscribers (EV3). That a hook has panicked is told before the event, so that the last event
    /// of a prompt stays the last.
    pub(super) fn deliver(&mut self, event: SessionEvent) {
        for (at, hook) in self.hooks.iter_mut().enumerate() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(&event))) {
                let message = text_of(&*panic);
                #[cfg(feature = "tracing")]
                tracing::error!(hook = at, message, "a hook panicked");
                let panicked = SessionEvent::HookPanicked { hook: at, message };
                Self::publish(&mut self.subscribers, panicked);
            }
        }
        Self::publish(&mut self.subscribers, event);
    }

    fn publish(subscribers: &mut Vec<Weak<Queue>>, event: SessionEvent) {
        if subscribers.is_empty() {
            return;
        }
        let event = Arc::new(event);
        subscribers.retain(|queue| {
            let queue = queue.upgrade();
            if let Some(queue) = &queue {
                queue.push(Arc::clone(&event));
            }
            queue.is_some()
        });
    }

    pub(super) fn close(&mut self) {
        self.hooks.clear();
        for queue in self
            .subscribers
            .drain(..)
            .filter_map(|queue| queue.upgrade())
        {
            queue.close();
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
        .to_owned()
}

/// A subscriber lost its oldest so many events, because it did not take them in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed(pub u64);

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missed {} events", self.0)
    }
}

impl std::error::Error for Missed {}

/// The events of a session in order, from [`Handle::subscribe`](super::Handle::subscribe) on.
///
/// An item is an event, or how many were lost at this place. The latest ones are kept, so that the end of a prompt is
/// always seen.
#[derive(Debug)]
pub struct Subscription {
    queue: Arc<Queue>,
}

/// The queue of one subscriber.
#[derive(Debug)]
struct Queue {
    ring: Mutex<Ring>,
    changed: Condvar,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Arc<SessionEvent>>,
    capacity: usize,
    missed: u64,
    closed: bool,
    waker: Option<Waker>,
}

/// What a subscriber is given.
type Item = Result<Arc<SessionEvent>, Missed>;

impl Subscription {
    pub(super) fn new(capacity: usize) -> Self {
        let ring = Ring {
            events: VecDeque::new(),
            capacity: capacity.max(1),
            missed: 0,
            // Until a session has it.
            closed: true,
            waker: None,
        };
        Self {
            queue: Arc::new(Queue {
                ring: Mutex::new(ring),
                changed: Condvar::new(),
            }),
        }
    }

    pub(super) fn open(&self) {
        self.queue.lock().closed = false;
    }

    /// What is there already; None if nothing is.
    pub fn try_next(&mut self) -> Option<Item> {
        self.queue.lock().take()
    }

    /// The next event; None when the session is gone and all has been taken.
    ///
    /// Cancel safety: dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next event, for streams of one's own making.
    pub fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Item>> {
        let waker = cx.waker().clone();
        let mut ring = self.queue.lock();
        let item = ring.take();
        if item.is_some() || ring.closed {
            return Poll::Ready(item);
        }
        let old = ring.waker.replace(waker);
        drop(ring);
        drop(old);
        Poll::Pending
    }

    /// Waits for the next event on this thread, for so long at most; None if none came, or none will come.
    #[cfg(feature = "blocking")]
    pub fn wait_next(&mut self, timeout: std::time::Duration) -> Option<Item> {
        let (mut ring, _) = self
            .queue
            .changed
            .wait_timeout_while(self.queue.lock(), timeout, |ring| {
                ring.is_empty() && !ring.closed
            })
            .unwrap_or_else(PoisonError::into_inner);
        ring.take()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Arc<SessionEvent>) {
        let mut ring = self.lock();
        let oldest = (ring.events.len() == ring.capacity).then(|| ring.events.pop_front());
        ring.missed += u64::from(oldest.is_some());
        ring.events.push_back(event);
        self.wake(ring);
    }

    fn close(&self) {
        let mut ring = self.lock();
        ring.closed = true;
        self.wake(ring);
    }

    fn wake(&self, mut ring: MutexGuard<'_, Ring>) {
        let waker = ring.waker.take();
        drop(ring);
        self.changed.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Ring {
    #[cfg(feature = "blocking")]
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.missed == 0
    }

    fn take(&mut self) -> Option<Item> {
        if self.missed > 0 {
            return Some(Err(Missed(std::mem::take(&mut self.missed))));
        }
        self.events.pop_front().map(Ok)
    }
}
