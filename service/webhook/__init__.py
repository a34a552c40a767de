"""A webhook: events go to a receiver of the operator's, each at least once and in order.

    envelope.py   an event's record as a CloudEvent
    receiver.py   one attempt to tell it, and what the answer means
    sender.py     a thread beside the trainer: outbox -> receiver, until it is taken

The journal puts the events that are asked for into an outbox, a stream in Redis, in the same script
as all other reports. The sender takes an event out when the receiver has it. So neither a restart
nor a receiver that is away loses an event, as far as the outbox reaches. `service/signature.py`
proves to the receiver that a message is ours (Standard Webhooks).
"""
