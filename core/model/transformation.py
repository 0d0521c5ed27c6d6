"""What requests come to where some resources count as others for quota (Kueue's KEP-2937); what pods need on nodes stays as it is."""

from fractions import Fraction

from core.model.claimed_devices import convert_devices, is_devices
from core.model.configuration import ResourceRules
from core.model.pod_resources import Resources, add


def compute_quota_requests(requests: Resources, rules: ResourceRules) -> dict[str, int]:
    """Returns the requests of one pod as quota counts them: canonical amounts by resource, rounded up and not cut at `LARGEST`; a new dict.

    Resources with an excluded prefix are left out first, also as inputs and factors. Outputs are neither excluded nor transformed again;
    what several inputs come to is summed. Of several transformations of one input the last holds. Where nothing is asked for of the
    resource to multiply by, the factor is one. Claimed devices (`core.model.claimed_devices`) count as the resources of their classes:
    these amounts are neither excluded nor transformed. Devices of other classes are left out.
    """
    if not rules.device_classes:
        return _compute_transformed(requests, rules)
    total = _compute_transformed({name: amount for name, amount in requests.items() if not is_devices(name)}, rules)
    add(total, convert_devices(requests, rules.device_classes))
    return total


def _compute_transformed(requests: Resources, rules: ResourceRules) -> dict[str, int]:
    if not rules.excluded_prefixes and not rules.transformations:
        return dict(requests)
    asked = {name: amount for name, amount in requests.items() if not name.startswith(rules.excluded_prefixes)}
    by_input = {each.input: each for each in rules.transformations}
    total: dict[str, Fraction] = {}
    for name, amount in asked.items():
        transformation = by_input.get(name)
        if transformation is None or transformation.retains:
            total[name] = total.get(name, Fraction()) + amount
        if transformation is None:
            continue
        whole = Fraction(amount, _count_units(name))
        factor = transformation.multiply_by
        if factor is not None and factor in asked:
            whole *= Fraction(asked[factor], _count_units(factor))
        for output, milli in transformation.outputs_milli.items():
            total[output] = total.get(output, Fraction()) + whole * Fraction(milli, 1000) * _count_units(output)
    return {name: -(-amount.numerator // amount.denominator) for name, amount in total.items()}


def _count_units(resource: str) -> int:
    """Canonical units in a whole one."""
    return 1000 if resource == "cpu" else 1
