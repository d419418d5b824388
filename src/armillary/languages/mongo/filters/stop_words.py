"""Words that text indexes leave out, because nearly every text has them: those of the Snowball project, for English and
German. In a language that has none here every word counts.
"""

from __future__ import annotations

from typing import Final

_ENGLISH: Final = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being
have has had having do does did doing would should could ought a an the and but if or because as until while of at by
for with about against between into through during before after above below to from up down in out on off over under
again further then once here there when where why how all any both each few more most other some such no nor not only
own same so than too very
"""
_SHORTENED: Final = """
i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd we'd they'd i'll you'll he'll
she'll we'll they'll isn't aren't wasn't weren't hasn't haven't hadn't doesn't don't didn't won't wouldn't shan't
shouldn't can't cannot couldn't mustn't let's that's who's what's here's there's when's where's why's how's
"""
_GERMAN: Final = """
aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei bin bis
bist da damit dann das dass dein deine dem den der des derselbe desselben dich die dies diese diesem diesen dieser
dieses dir doch dort du durch ein eine einem einen einer eines er es etwas euer eure fur gegen gewesen hab habe haben
hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre im in indem ins ist jede jedem jeden jeder jedes jene
jetzt kann kein keine konnen machen man manche mein meine mich mir mit muss musste nach nicht nichts noch nun nur ob
oder ohne sehr sein seine selbst sich sie sind so solche soll sollte sondern sonst uber um und uns unser unter viel
vom von vor wahrend war waren warst was weg weil weiter welche wenn werde werden wie wieder will wir wird wirst wo
wollen wurde wurden zu zum zur zwar zwischen
"""
STOP_WORDS: Final[dict[str, frozenset[str]]] = {
    "en-US": frozenset((_ENGLISH + _SHORTENED).split()),
    "de-DE": frozenset(_GERMAN.split()),
}
