"""A webhook: what happens is told to a receiver of the operator's, once at least and in order.

    signature.py  proves to the receiver that a message is ours (Standard Webhooks)
    envelope.py   an event's record as a CloudEvent
    receiver.py   one attempt to tell it, and what the answer means
    courier.py    a thread beside the trainer: outbox -> receiver, until it is taken

The journal puts the events that are asked for into an outbox, a stream in Redis, in the same
script as all other reports; the courier takes them out when the receiver has them. So neither a
restart nor a receiver that is away for long loses one, as far as the outbox reaches.
"""
